"""The sections of settings that all daemons share, and the types of their values."""

import tomllib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from shale.core.settings_values import parse_duration_s, parse_size
from shale.crypto.aes_gcm import AesGcm
from shale.errors import InvalidRequestError
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BITS_PER_KEY_MAX, BloomPolicy, DelimitedPrefix, FixedPrefix, PrefixExtractor
from shale.service.config.secret_url import SecretUrl, url_text
from shale.service.config.section import Section
from shale.sst.disk_cache_options import (
    DEFAULT_MAX_BYTES,
    DEFAULT_OPEN_FILES,
    DEFAULT_PART_BYTES,
    DiskCacheOptions,
    Preload,
)
from shale.store.location import Location, parse_location, parse_store_url
from shale.types import AckAfter, CasMode, KeyRange


def _seconds(value: Any) -> float:
    try:
        return parse_duration_s(value)
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error


def _bytes(value: Any) -> int:
    try:
        return parse_size(value)
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error


def _from_toml(text: str, what: str) -> Any:
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError) as error:  # a number of thousands of digits raises a plain ValueError
        raise ValueError(f"is not {what}: {error}") from error


def _texts(value: Any) -> Any:
    """Parse a list from a variable: comma-separated, or as TOML."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _from_toml(value, "a list")
    return [part.strip() for part in value.split(",") if part.strip()]


def _texts_by_name(value: Any) -> Any:
    """Parse a table from a variable: comma-separated ``name=text``, or as TOML."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return _from_toml(value, "a table")
    pairs = [part.partition("=") for part in _texts(value)]
    if any(not equals for _, equals, _ in pairs):
        raise ValueError("write comma-separated name=value pairs")
    return {name.strip(): text.strip() for name, _, text in pairs}


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be greater than 0")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str | float)]
"""A duration such as ``250ms`` or ``1h30m``; plain numbers are seconds."""

PositiveSeconds = Annotated[Seconds, AfterValidator(_positive)]

Bytes = Annotated[int, BeforeValidator(_bytes, json_schema_input_type=str | int)]
"""A size such as ``64MiB`` or ``64MB``; plain numbers are bytes."""

Texts = Annotated[tuple[str, ...], BeforeValidator(_texts, json_schema_input_type=str | list[str])]
"""A list of strings; in the environment ``a,b``."""

TextsByName = Annotated[dict[str, str], BeforeValidator(_texts_by_name, json_schema_input_type=str | dict[str, str])]
"""Strings by name; in the environment ``name=a,other=b``."""

UrlsByName = Annotated[
    dict[str, SecretUrl], BeforeValidator(_texts_by_name, json_schema_input_type=str | dict[str, str])
]
"""URLs by name, in the same form."""

Port = Annotated[int, Field(ge=0, le=65535)]


class DatabaseSection(Section):
    """The location of the database: one URL, or a store and a path in it."""

    url: SecretUrl | None = Field(
        default=None, description="The database, for example s3://bucket/path or file:///data/orders."
    )
    store: SecretUrl | None = Field(
        default=None, description="The store without the path; needed for paths deeper than one level."
    )
    path: str | None = Field(default=None, description="The database's path in the store.")
    wal_store: SecretUrl | None = Field(
        default=None, description="A separate store for the WAL; it uses the options of [store]."
    )
    alias: str | None = Field(default=None, description="The db label of metrics and logs; by default the path.")

    @model_validator(mode="after")
    def _is_a_place(self) -> "DatabaseSection":
        try:
            self.location()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        try:
            self.wal_store_url()
        except InvalidRequestError as error:
            raise ValueError(f"wal_store: {error}") from error
        return self

    def location(self) -> Location:
        """Return the store and the path."""
        return parse_location(url_text(self.url), url_text(self.store), self.path)

    def wal_store_url(self) -> str | None:
        """Return the separate store of the WAL; ``None`` if the WAL is in the main store."""
        return None if self.wal_store is None else parse_store_url(self.wal_store.get_secret_value())

    def label(self) -> str:
        """Return the ``db`` label of metrics and logs."""
        return self.alias or self.location().path or "db"


class StoreSection(Section):
    """Access to the object store; missing values come from the places that the cloud's own tools use."""

    endpoint: SecretUrl | None = Field(default=None, description="URL of a server compatible with S3, Azure or GCS.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    access_key_id: SecretStr | None = Field(
        default=None, description="Access key ID sent to the store; best as a secret file."
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="Secret of the access key; best as a secret file."
    )
    session_token: SecretStr | None = Field(default=None, description="AWS session token of temporary credentials.")
    request_timeout: PositiveSeconds = Field(default=30.0, description="Timeout of one attempt of a request.")
    connect_timeout: PositiveSeconds = Field(default=5.0, description="Timeout of opening a connection.")
    max_retries: int | None = Field(default=None, ge=0, description="Retries of one request; none: no limit.")
    fail_fast_auth: bool = Field(
        default=False, description="End the process when credentials are rejected, instead of retrying."
    )
    cas: CasMode = Field(
        default=CasMode.NATIVE,
        description="How files are created once: native, by the store's conditional writes; two-phase, through a "
        "transactional store, for stores without them.",
    )
    transactional_url: SecretStr | None = Field(
        default=None,
        description="The transactional store of the two-phase mode: sqlite:///absolute/path, postgresql://, mysql:// "
        "or dynamodb://region/table; best as a secret file.",
    )
    ack_after: AckAfter = Field(
        default=AckAfter.COPY,
        description="When a create of the two-phase mode returns: copy, when the object can be read plainly; record, "
        "at its commit point, two requests earlier.",
    )
    preflight: bool = Field(default=True, description="Check at start that the store supports conditional writes.")
    start_timeout: PositiveSeconds = Field(
        default=60.0, description="How long to wait at start for an unreachable store."
    )
    clock_check_interval: PositiveSeconds = Field(
        default=300.0,
        description="How often a daemon that makes the check at start compares the store's clock with its own.",
    )

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> "StoreSection":
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key: give both or neither")
        return self

    @model_validator(mode="after")
    def _records_have_a_place(self) -> "StoreSection":
        if (self.cas is CasMode.TWO_PHASE) != (self.transactional_url is not None):
            raise ValueError("transactional_url: give it with cas=two-phase, and only then")
        return self


class EncryptionSection(Section):
    """Encryption at rest of SSTs and WAL files."""

    key_file: str = Field(
        description="A file with a key name and a hexadecimal key per line; the first key encrypts, all keys decrypt."
    )

    def transformer(self) -> BlockTransformer:
        """Read the key file.

        Raises:
            InvalidRequestError: the file cannot be read or parsed; the message names the setting.
        """
        try:
            return AesGcm.from_file(self.key_file)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"encryption.key_file: {str(error).removeprefix('encryption: ')}") from error


class LogSection(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="info", description="Events below this level are not logged."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: JSON unless stderr is a terminal."
    )
    keys: Literal["short", "full"] = Field(
        default="short", description="full: log whole keys; short: log a prefix of each key."
    )


class ReadySection(Section):
    """When the process reports that it is not ready."""

    grace: Seconds = Field(
        default=30.0, description="How long the process stays ready while the store is unreachable, or takes no writes."
    )


class MetricsSection(Section):
    """Metrics."""

    sample_rate: float = Field(default=1.0, gt=0.0, le=1.0, description="Share of requests whose latency is observed.")


class FilterSection(Section):
    """One filter of each SST; all processes that write SSTs of a database should have the same filters."""

    bits_per_key: int = Field(
        default=10, ge=1, le=BITS_PER_KEY_MAX, description="Bits per key; 10 gives 1 % false positives."
    )
    prefix: str | None = Field(default=None, description="Name of the prefix extractor, stored with the filter.")
    prefix_bytes: int | None = Field(
        default=None, ge=1, description="The prefix is this many bytes of the key. Alternative to prefix_delimiter."
    )
    prefix_delimiter: str | None = Field(
        default=None, min_length=1, description="The prefix ends with the first occurrence of this text."
    )
    whole_key: bool = Field(default=True, description="Also add whole keys to the filter.")

    @model_validator(mode="after")
    def _is_possible(self) -> "FilterSection":
        named = self.prefix is not None
        rules = (self.prefix_bytes is not None) + (self.prefix_delimiter is not None)
        if rules != named:
            raise ValueError("prefix needs one of prefix_bytes and prefix_delimiter, and each of them needs prefix")
        if not named and not self.whole_key:
            raise ValueError("whole_key = false needs a prefix; without one the filter would be empty")
        return self

    def policy(self) -> BloomPolicy:
        """Return the filter policy of the engine."""
        return BloomPolicy(self.bits_per_key, self._extractor(), self.whole_key)

    def _extractor(self) -> PrefixExtractor | None:
        if self.prefix is None:
            return None
        return _extractor(self.prefix, self.prefix_bytes, self.prefix_delimiter)


Filters = Annotated[tuple[FilterSection, ...], Field(description="The filters of each SST.")]

CompressionCodec = Annotated[
    Literal["none", "snappy", "zlib", "lz4", "zstd"], Field(description="Compression of the blocks of new SSTs.")
]


class SegmentExtractorSection(Section):
    """The segment extractor of a database: all keys with the same prefix form a segment with its own tree."""

    name: str = Field(min_length=1, description="Stored with the database and cannot change later.")
    prefix_bytes: int | None = Field(
        default=None, ge=1, description="The prefix is this many bytes of the key. Alternative to prefix_delimiter."
    )
    prefix_delimiter: str | None = Field(
        default=None, min_length=1, description="The prefix ends with the first occurrence of this text."
    )

    @model_validator(mode="after")
    def _is_possible(self) -> "SegmentExtractorSection":
        if (self.prefix_bytes is None) == (self.prefix_delimiter is None):
            raise ValueError("give one of prefix_bytes and prefix_delimiter")
        return self

    def extractor(self) -> PrefixExtractor:
        """Return the prefix extractor of the engine."""
        return _extractor(self.name, self.prefix_bytes, self.prefix_delimiter)


def _extractor(name: str, prefix_bytes: int | None, delimiter: str | None) -> PrefixExtractor:
    if prefix_bytes is not None:
        return FixedPrefix(name, prefix_bytes)
    assert delimiter is not None
    return DelimitedPrefix(name, delimiter.encode())


class KeyRangeSection(Section):
    """A range of keys; a missing bound means no limit on that side."""

    start: str | None = Field(default=None, description="First key of the range; none: no limit.")
    end: str | None = Field(default=None, description="First key after the range; none: no limit.")
    format: Literal["utf8", "hex"] = Field(default="utf8", description="Encoding of start and end.")

    @model_validator(mode="after")
    def _is_possible(self) -> "KeyRangeSection":
        if self.keys().is_empty:
            raise ValueError("no key lies between start and end")
        return self

    def keys(self) -> KeyRange:
        """Return the key range of the engine.

        Raises:
            ValueError: a bound is not hexadecimal although ``format`` is ``hex``.
        """
        return KeyRange.half_open(self._key(self.start), self._key(self.end))

    def _key(self, text: str | None) -> bytes | None:
        if text is None:
            return None
        return bytes.fromhex(text) if self.format == "hex" else text.encode()


class DiskCacheSection(Section):
    """A local disk cache for parts of SSTs."""

    directory: str = Field(description="Directory of the cache; created if missing. Processes may share it.")
    max_bytes: Bytes = Field(default=DEFAULT_MAX_BYTES, description="Size limit of the cache.")
    part_bytes: Bytes = Field(
        default=DEFAULT_PART_BYTES, description="Size of the parts in which SSTs are read from the store."
    )
    cache_on_flush: bool = Field(
        default=False, description="SSTs that this process flushes enter the cache while they are uploaded."
    )
    preload: Literal["l0", "all"] | None = Field(
        default=None, description="Load whole SSTs at the start, as far as they fit: those of L0, or all."
    )
    max_open_files: int = Field(
        default=DEFAULT_OPEN_FILES, ge=1, description="Parts that a database keeps open for reads."
    )

    @model_validator(mode="after")
    def _is_possible(self) -> "DiskCacheSection":
        try:
            self.options()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def options(self) -> DiskCacheOptions:
        """Return the options of the engine."""
        return DiskCacheOptions(
            self.directory,
            self.max_bytes,
            self.part_bytes,
            cache_on_flush=self.cache_on_flush,
            preload=None if self.preload is None else Preload(self.preload),
            max_open_files=self.max_open_files,
        )
