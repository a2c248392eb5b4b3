"""Reads the options of stores from variables, named as those of the daemons: ``SHALE_STORE__ENDPOINT`` and others.

A program that embeds the engine finds the same store as the daemons beside it.  The daemons read the same variables
with pydantic, which would take longer than the rest of an open.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from shale.core.settings_values import parse_duration_s, parse_integer
from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError
from shale.store.options import RetryPolicy, StoreOptions
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import AckAfter, CasMode

log = get_logger("store")

PREFIX: Final = "SHALE_STORE__"
_CONFIG = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
_OF_DAEMONS = ("clock_check_interval", "preflight", "start_timeout")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def options_from(environ: Mapping[str, str]) -> StoreOptions:
    """Return the options that variables set; the defaults for all others.

    Raises:
        InvalidRequestError: an impossible value; the message names the variable.
    """
    texts = {name.removeprefix(PREFIX).lower(): text for name, text in environ.items() if name.startswith(PREFIX)}
    if not texts:
        return StoreOptions()
    values = {name: _PARSERS[name](text, f"{PREFIX}{name.upper()}") for name, text in texts.items() if _is_known(name)}
    config = {name: values.pop(name) for name in _CONFIG if name in values}
    if ("access_key_id" in config) != ("secret_access_key" in config):
        raise InvalidRequestError(f"{PREFIX}ACCESS_KEY_ID and {PREFIX}SECRET_ACCESS_KEY: give both or neither")
    if (values.get("cas") is CasMode.TWO_PHASE) != ("transactional_url" in values):
        raise InvalidRequestError(f"{PREFIX}TRANSACTIONAL_URL: give it with {PREFIX}CAS=two-phase, and only then")
    retry = {_RETRY[name]: values.pop(name) for name in _RETRY if name in values}
    named = {_FIELDS.get(name, name): value for name, value in values.items()}
    return StoreOptions(retry=RetryPolicy(**retry), config=config, **named)


def with_environment(options: StoreOptions, environ: Mapping[str, str]) -> StoreOptions:
    """Return options to which the variables of this process are added, if they are to be.

    The settings of the store in ``options`` win, and its retries stay.

    Raises:
        InvalidRequestError: an impossible value; the message names the variable.
    """
    if not options.reads_environment:
        return options
    found = options_from(environ)
    # A setting may be given by another of its names, such as aws_endpoint_url; obstore refuses both.
    added = {name: text for name, text in found.config.items() if not any(name in given for given in options.config)}
    return replace(found, config={**added, **options.config}, client=options.client, retry=options.retry)


def _is_known(name: str) -> bool:
    """Whether a variable is read here; warns of those that no process reads, as the daemons do."""
    if name in _PARSERS:
        return True
    if name not in _OF_DAEMONS:
        known = (*_PARSERS, *_OF_DAEMONS)
        log.warning(Event.CONFIG_UNKNOWN_ENV, key=f"{PREFIX}{name.upper()}{suggest(name, known)}")
    return False


def _text(text: str, _variable: str) -> str:
    return text


def _boolean(text: str, variable: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise InvalidRequestError(f"{variable}: {text!r} is neither true nor false")
    return value


def _duration(text: str, variable: str) -> float:
    seconds = parse_duration_s(text, name=variable)
    if seconds <= 0:
        raise InvalidRequestError(f"{variable}: {text!r} must be greater than 0")
    return seconds


def _count(text: str, variable: str) -> int:
    return parse_integer(text, name=variable)


def _choice(choices: type[StrEnum]) -> Callable[[str, str], StrEnum]:
    def parse(text: str, variable: str) -> StrEnum:
        try:
            return choices(text)
        except ValueError:
            raise InvalidRequestError(f"{variable}: {text!r} is none of {', '.join(choices)}") from None

    return parse


_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(_CONFIG, _text),
    "request_timeout": _duration,
    "connect_timeout": _duration,
    "max_retries": _count,
    "fail_fast_auth": _boolean,
    "cas": _choice(CasMode),
    "transactional_url": _text,
    "ack_after": _choice(AckAfter),
}
_RETRY: Final = {"max_retries": "retries_max", "fail_fast_auth": "fail_fast_auth"}
_FIELDS: Final = {"request_timeout": "request_timeout_s", "connect_timeout": "connect_timeout_s"}
