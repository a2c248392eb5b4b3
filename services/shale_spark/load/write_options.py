"""The options of ``df.write.format("shale")``, which are all text."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

import httpx

from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import parse_duration_s, parse_size
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError
from shale_spark.codecs import ValueCodec, value_codec
from shale_spark.load.batch_sender import Endpoint
from shale_spark.load.request import LoadArguments, LoadColumns, LoadRequest, lifetime_ms, load_request
from shale_spark.source.options import lowercase_names, parse_where, refuse_unknown

_TOKEN = re.compile(r"[!-~]+")
_COMMON = frozenset({"mode", "key", "value", "value_format", "avro_schema", "ttl", "expire_at", "dead_letters"})
_APPEND = _COMMON | {"endpoint", "token", "ca_file", "cert_file", "key_file", "timeout", "batch_rows", "batch_bytes"}
_BUILD = _COMMON | {"url", "path", "store", "sst_bytes", "block_size", "compression", "min_filter_keys"}


class WriteMode(StrEnum):
    """Through a running writer, or as a new database."""

    APPEND = "append"
    BUILD = "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """Rows through a writer daemon, in batches of at most so many rows and bytes."""

    endpoint: Endpoint
    columns: LoadColumns = field(default_factory=LoadColumns)
    codec: ValueCodec | None = None
    ttl_ms: int | None = None
    batch_rows: int = 20_000
    batch_bytes: int = 4 << 20


def write_request(options: Mapping[str, str]) -> AppendRequest | LoadRequest:
    """Parse the options.

    Raises:
        InvalidRequestError: an option is unknown, invalid or missing.
    """
    given = lowercase_names(options)
    text = given.get("mode", WriteMode.APPEND)
    if text not in tuple(WriteMode):
        raise InvalidRequestError(f"mode: {text!r} is none of {', '.join(WriteMode)}")
    refuse_unknown(given, _APPEND if text == WriteMode.APPEND else _BUILD)
    return _append(given) if text == WriteMode.APPEND else _build(given)


def dead_letters_folder(options: Mapping[str, str]) -> DatabaseLocation | None:
    """Return the folder for rows that cannot be stored, if there is one; ``store.…`` configures the access to it, too.

    Raises:
        InvalidRequestError: not the URL of a folder that every task can reach.
    """
    given = lowercase_names(options)
    text = given.get("dead_letters")
    if text is None:
        return None
    if "://" not in text or text.startswith("memory:"):
        raise InvalidRequestError(f"dead_letters: {text!r} is no URL of a folder that every task can reach")
    reached = {name: value for name, value in given.items() if name.startswith("store.")}
    try:
        return parse_where({**reached, "url": text})
    except InvalidRequestError as error:
        raise InvalidRequestError(f"dead_letters: {error}") from None


def _append(options: Mapping[str, str]) -> AppendRequest:
    timeout, ttl, format_ = options.get("timeout", "5m"), options.get("ttl"), options.get("value_format")
    return AppendRequest(
        endpoint=Endpoint(
            url=_url(options.get("endpoint")),
            token=_token(options.get("token")),
            timeout_s=parse_duration_s(timeout, name="timeout"),
            ca_file=options.get("ca_file"),
            cert_file=options.get("cert_file"),
            key_file=options.get("key_file"),
        ),
        columns=LoadColumns(key=options.get("key", "key"), values=_values(options), expire_at=options.get("expire_at")),
        codec=None if format_ is None else value_codec(format_, avro_schema=options.get("avro_schema")),
        ttl_ms=None if ttl is None else lifetime_ms(ttl),
        batch_rows=_at_least_one(options.get("batch_rows", "20000"), "batch_rows"),
        batch_bytes=_at_least_one(options.get("batch_bytes", "4MiB"), "batch_bytes"),
    )


def _url(text: str | None) -> str:
    """Check the writer's address, because a bad one would be retried for minutes."""
    if text is None:
        raise InvalidRequestError('endpoint: the address of a writer, http://host:8080, or mode="build"')
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidRequestError(f"endpoint: {error}") from None
    if url.userinfo:
        raise InvalidRequestError("endpoint: a writer has no users: use a token")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequestError(f"endpoint: {text!r} does not begin with http:// or https:// and a host")
    return text


def _token(text: str | None) -> str | None:
    """Check the token without showing it; a file that holds one often ends it with a line feed."""
    if text is not None and not _TOKEN.fullmatch(text):
        raise InvalidRequestError("token: a header holds visible ASCII characters, and no spaces or line ends")
    return text


def _build(options: Mapping[str, str]) -> LoadRequest:
    arguments: LoadArguments = {"value": _values(options) or None}
    for name in ("key", "value_format", "avro_schema", "ttl", "expire_at", "sst_bytes", "block_size", "compression"):
        if name in options:
            arguments[name] = options[name]
    if "min_filter_keys" in options:
        arguments["min_filter_keys"] = parse_size(options["min_filter_keys"], name="min_filter_keys")
    return load_request(parse_where(options), **arguments)


def _values(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("value")
    if text is None:
        return ("value",) if options.get("value_format") is None else ()
    return tuple(name.strip() for name in text.split(",")) if "value_format" in options else (text,)


def _at_least_one(text: str, name: str) -> int:
    number = parse_size(text, name=name)
    if number < 1:
        raise InvalidRequestError(f"{name}: {text!r} is less than 1")
    return number
