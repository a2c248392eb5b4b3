"""Creates obstore's store objects from a URL and options."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from shale.core.url_secrets import without_userinfo
from shale.errors import InvalidRequestError, WrongType
from shale.store.cloud_store import translate_errors
from shale.store.options import RetryPolicy, StoreOptions

_BACKENDS: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_HINTS = {
    "Account must be specified": "set account_name and account_key in store_options, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY",
    "Missing SecretAccessKey": "set secret_access_key in store_options, or AWS_SECRET_ACCESS_KEY",
    "Missing AccessKeyId": "set access_key_id in store_options, or AWS_ACCESS_KEY_ID",
}
"""What to do about the text of an error; obstore only says what is missing."""
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_NAMES = ("endpoint", "base_url")
"""One of these is in the name of every option that is an endpoint."""


def sends_once(url: str, options: StoreOptions) -> Any:
    """Return a store that sends every request once.

    Raises:
        InvalidRequestError: an option that obstore does not know.
    """
    return _backend(url, options, {"max_retries": 0})


def repeats(url: str, options: StoreOptions) -> Any:
    """Return a store that retries requests, with the delays of docs/reference/protocol.md 0.3."""
    return _backend(url, options, _retry_config(options.retry))


def _backend(url: str, options: StoreOptions, retry_config: Mapping[str, Any]) -> Any:
    scheme, _, bucket = url.partition("://")
    client: dict[str, Any] = {
        "timeout": f"{options.request_timeout_s:g}s",
        "connect_timeout": f"{options.connect_timeout_s:g}s",
    }
    if any(urlsplit(endpoint).scheme == "http" for endpoint in _endpoints(url, options.config)):
        # obstore reads the provider's variables itself, but explicit client options hide its AWS_ALLOW_HTTP.
        client["allow_http"] = True
    client |= options.client
    config = dict(options.config)
    if scheme == "gs" and "endpoint" in config:
        config["base_url"] = config.pop("endpoint")  # the only one that obstore names otherwise
    try:
        return _BACKENDS[scheme](bucket, config=config, client_options=client, retry_config=dict(retry_config))
    except (BaseError, ValueError) as error:
        reason = translate_errors.first_line(error)
        hint = next((f": {hint}" for text, hint in _HINTS.items() if text in reason), "")
        raise InvalidRequestError(f"{url}: {reason}{hint}") from None


def _endpoints(url: str, config: Mapping[str, str]) -> list[str]:
    """Return the endpoints of the options and of the provider's variables.

    Raises:
        WrongType: an endpoint is no text.
        InvalidRequestError: an endpoint is no URL.  The first request to it would panic.
    """
    named = {name: value for name, value in config.items() if any(word in name.lower() for word in _NAMES)}
    variables = _ENDPOINTS[url.partition("://")[0]]
    named |= {name: os.environ[name] for name in variables if name in os.environ}
    for name, endpoint in named.items():
        if not isinstance(endpoint, str):
            raise WrongType(f"{url}: {name} is of type {type(endpoint).__name__}: give a URL, http://localhost:9000")
        if urlsplit(endpoint).scheme not in {"http", "https"} or not urlsplit(endpoint).netloc:
            shown = without_userinfo(endpoint)
            raise InvalidRequestError(
                f"{url}: {name} {shown!r} is not a URL: write http://{shown} or https://{shown}"
                if "://" not in endpoint
                else f"{url}: {name} {shown!r} is not a URL such as https://localhost:9000"
            )
    return list(named.values())


def _retry_config(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "max_retries": 1_000_000 if policy.retries_max is None else policy.retries_max,
        "retry_timeout": timedelta(days=1),
        "backoff": {
            "init_backoff": timedelta(seconds=policy.first_delay_s),
            "max_backoff": timedelta(seconds=policy.delay_cap_s),
            "base": 2,
        },
    }
