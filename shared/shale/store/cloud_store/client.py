"""Creates obstore's store objects from a URL and options."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from shale.errors import InvalidRequestError
from shale.store.cloud_store import translate_errors
from shale.store.options import RetryPolicy, StoreOptions

_BACKENDS: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "gs": (), "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")}


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
    if _is_plain_http(scheme, options.config):
        client["allow_http"] = True
    client |= options.client
    try:
        return _BACKENDS[scheme](
            bucket, config=dict(options.config), client_options=client, retry_config=dict(retry_config)
        )
    except (BaseError, ValueError) as error:
        raise InvalidRequestError(f"{url}: {translate_errors.first_line(error)}") from error


def _is_plain_http(scheme: str, config: Mapping[str, str]) -> bool:
    """Return whether the endpoint is an ``http://`` URL, which then is allowed.

    obstore reads the provider's variables itself, but explicit client options hide its AWS_ALLOW_HTTP.
    """
    named = [value for name, value in config.items() if "endpoint" in name.lower()]
    named += [os.environ[name] for name in _ENDPOINTS[scheme] if name in os.environ]
    return any(urlsplit(endpoint).scheme == "http" for endpoint in named)


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
