"""The sections of settings that all daemons share, and the types of their values."""

import tomllib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from shale.engine.aes_gcm import AesGcm
from shale.engine.settings_values import parse_duration_s, parse_size
from shale.errors import InvalidRequestError
from shale.format.bloom import BITS_PER_KEY_MAX, BloomPolicy, DelimitedPrefix, FixedPrefix, PrefixExtractor
from shale.format.transform import BlockTransformer
from shale.sst.disk_cache import DEFAULT_MAX_BYTES, DEFAULT_PART_BYTES, DiskCacheOptions
from shale.store.location import Location, parse_location, parse_store_url
from shale.types import KeyRange


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


def _texts(value: Any) -> Any:
    """A list from a variable: parts between commas, or written as in a file."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except ValueError as error:  # a number of thousands of digits is none of tomllib's own errors
            raise ValueError(f"is no list: {error}") from error
    return [part.strip() for part in value.split(",") if part.strip()]


def _texts_by_name(value: Any) -> Any:
    """A table from a variable: ``name=text`` between commas, or written as in a file."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        try:
            return tomllib.loads(f"value = {value.strip()}")["value"]
        except ValueError as error:
            raise ValueError(f"is no table: {error}") from error
    pairs = [part.partition("=") for part in _texts(value)]
    if any(not equals for _, equals, _ in pairs):
        raise ValueError("write name=value, with commas in between")
    return {name.strip(): text.strip() for name, _, text in pairs}


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be greater than 0")
    return value


def _sayable(token: SecretStr) -> SecretStr:
    text = token.get_secret_value()
    if not text:
        raise ValueError("is empty: it would let everybody in; leave it out for a port without a token")
    if not all("!" <= letter <= "~" for letter in text):
        raise ValueError("must be printable ASCII characters without blanks: nothing else arrives in a header as it is")
    return token


Token = Annotated[SecretStr, AfterValidator(_sayable)]
"""What callers of a port must say.  An empty one, as of an empty secret file, is refused."""

Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str | float)]
"""A duration such as ``250ms`` or ``1h30m``; plain numbers are seconds."""

PositiveSeconds = Annotated[Seconds, AfterValidator(_positive)]

Bytes = Annotated[int, BeforeValidator(_bytes, json_schema_input_type=str | int)]
"""A size such as ``64MiB`` or ``64MB``; plain numbers are bytes."""

Texts = Annotated[tuple[str, ...], BeforeValidator(_texts, json_schema_input_type=str | list[str])]
"""A list of texts; from the environment ``a,b``."""

TextsByName = Annotated[dict[str, str], BeforeValidator(_texts_by_name, json_schema_input_type=str | dict[str, str])]
"""Texts by their names; from the environment ``name=a,other=b``."""

Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    """A group of settings; unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


class DatabaseSection(Section):
    """Where the database lives: one URL, or a store and a path in it."""

    url: str | None = Field(
        default=None, description="The database, for example s3://bucket/path or file:///data/orders."
    )
    store: str | None = Field(default=None, description="The store alone, for paths deeper than one level.")
    path: str | None = Field(default=None, description="The database's path in the store.")
    wal_store: str | None = Field(
        default=None, description="The store of the WAL, if it has one of its own; reached as [store] says."
    )
    alias: str | None = Field(default=None, description="The label db of metrics and logs; the path by default.")

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
        """The store and the path."""
        return parse_location(self.url, self.store, self.path)

    def wal_store_url(self) -> str | None:
        """The store of the WAL; ``None``: it lives with the rest."""
        return None if self.wal_store is None else parse_store_url(self.wal_store)

    def label(self) -> str:
        """What metrics and logs call the database."""
        return self.alias or self.location().path or "db"


class StoreSection(Section):
    """How to reach the object store; what is not given is found as the cloud's own tools find it."""

    endpoint: str | None = Field(default=None, description="URL of an S3-compatible or Azure-compatible server.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    access_key_id: SecretStr | None = Field(
        default=None, description="Who we are for the store; best as a secret file."
    )
    secret_access_key: SecretStr | None = Field(default=None, description="Its secret.")
    session_token: SecretStr | None = Field(default=None, description="The token of temporary credentials.")
    request_timeout: PositiveSeconds = Field(default=30.0, description="How long one attempt may take.")
    connect_timeout: PositiveSeconds = Field(default=5.0, description="How long a connection may take to be made.")
    max_retries: int | None = Field(default=None, ge=0, description="Retries of one request; None: without end.")
    fail_fast_auth: bool = Field(default=False, description="Refused credentials end the process instead of waiting.")
    preflight: bool = Field(default=True, description="Prove conditional writes at start.")
    start_timeout: PositiveSeconds = Field(default=60.0, description="How long an unreachable store is waited for.")

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> "StoreSection":
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key are given together or not at all")
        return self


class EncryptionSection(Section):
    """Encryption at rest of what SSTs and WAL files hold."""

    key_file: str = Field(
        description="Lines of a name and a key in hexadecimal; the first key encrypts, all of them decrypt."
    )

    def transformer(self) -> BlockTransformer:
        """The keys, read now.

        Raises:
            InvalidRequestError: the file cannot be read or understood; names the setting.
        """
        try:
            return AesGcm.from_file(self.key_file)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"encryption.key_file: {str(error).removeprefix('encryption: ')}") from error


class AdminSection(Section):
    """The port for machines: metrics, health and the admin interface."""

    host: str = Field(default="127.0.0.1", description="The address to listen on; 0.0.0.0: all of them.")
    port: Port = Field(default=9464, description="0: any free one.")
    bearer_token: Token | None = Field(
        default=None, description="What callers of /v1/admin/… must send; best as a secret file."
    )


class LogSection(Section):
    """What is written to stderr, and how."""

    level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="info", description="What is less than this is not written."
    )
    format: Literal["auto", "json", "console"] = Field(default="auto", description="auto: JSON unless on a terminal.")
    keys: Literal["short", "full"] = Field(default="short", description="Whether lines may hold whole keys.")


class ShutdownSection(Section):
    """How long each step of a graceful stop may take."""

    drain_delay: Seconds = Field(default=0.0, description="From not ready to refusing work, for balancers.")
    request_timeout: PositiveSeconds = Field(default=10.0, description="How long running requests may take to end.")
    deadline: PositiveSeconds = Field(default=25.0, description="When a stop is cut short (exit 75).")


class ReadySection(Section):
    """When the process says that it cannot do its job."""

    grace: Seconds = Field(default=30.0, description="How long an unreachable store leaves the process ready.")


class MetricsSection(Section):
    """What is measured."""

    sample_rate: float = Field(default=1.0, gt=0.0, le=1.0, description="Share of requests whose latency is observed.")


class FilterSection(Section):
    """One filter of each SST; everybody who writes a database's SSTs should have the same ones."""

    bits_per_key: int = Field(default=10, ge=1, le=BITS_PER_KEY_MAX, description="10: one false alarm in a hundred.")
    prefix: str | None = Field(default=None, description="The name of prefixes, stored with the filter.")
    prefix_bytes: int | None = Field(default=None, ge=1, description="A prefix is so many first bytes of a key, or …")
    prefix_delimiter: str | None = Field(default=None, min_length=1, description="… all up to the first of these.")
    whole_key: bool = Field(default=True, description="Whether lookups of single keys are in the filter, too.")

    @model_validator(mode="after")
    def _is_possible(self) -> "FilterSection":
        named = self.prefix is not None
        rules = (self.prefix_bytes is not None) + (self.prefix_delimiter is not None)
        if rules != named:
            raise ValueError("prefix needs one of prefix_bytes and prefix_delimiter, and these need a prefix")
        if not named and not self.whole_key:
            raise ValueError("whole_key = false needs a prefix, or the filter is empty")
        return self

    def policy(self) -> BloomPolicy:
        """What SSTs are written and read with."""
        return BloomPolicy(self.bits_per_key, self._extractor(), self.whole_key)

    def _extractor(self) -> PrefixExtractor | None:
        if self.prefix is None:
            return None
        return _extractor(self.prefix, self.prefix_bytes, self.prefix_delimiter)


class SegmentExtractorSection(Section):
    """What makes the segments of a database: a tree of its own for all keys with one prefix."""

    name: str = Field(min_length=1, description="Stored with the database, which takes no other one later.")
    prefix_bytes: int | None = Field(default=None, ge=1, description="A prefix is so many first bytes of a key, or …")
    prefix_delimiter: str | None = Field(default=None, min_length=1, description="… all up to the first of these.")

    @model_validator(mode="after")
    def _is_possible(self) -> "SegmentExtractorSection":
        if (self.prefix_bytes is None) == (self.prefix_delimiter is None):
            raise ValueError("one of prefix_bytes and prefix_delimiter is needed")
        return self

    def extractor(self) -> PrefixExtractor:
        """What the engine takes."""
        return _extractor(self.name, self.prefix_bytes, self.prefix_delimiter)


def _extractor(name: str, prefix_bytes: int | None, delimiter: str | None) -> PrefixExtractor:
    if prefix_bytes is not None:
        return FixedPrefix(name, prefix_bytes)
    assert delimiter is not None
    return DelimitedPrefix(name, delimiter.encode())


class KeyRangeSection(Section):
    """Keys between two; without one of them there is no limit on that side."""

    start: str | None = Field(
        default=None, description="The first key of the range this process keeps to; none: no limit."
    )
    end: str | None = Field(default=None, description="The first key behind it; none: no limit.")
    format: Literal["utf8", "hex"] = Field(default="utf8", description="How both are written.")

    @model_validator(mode="after")
    def _is_possible(self) -> "KeyRangeSection":
        if self.keys().is_empty:
            raise ValueError("no key lies between start and end")
        return self

    def keys(self) -> KeyRange:
        """What the engine takes.

        Raises:
            ValueError: not in hexadecimal digits, though it should be.
        """
        return KeyRange.half_open(self._key(self.start), self._key(self.end))

    def _key(self, text: str | None) -> bytes | None:
        if text is None:
            return None
        return bytes.fromhex(text) if self.format == "hex" else text.encode()


class DiskCacheSection(Section):
    """A directory in which parts of SSTs are kept between the store and memory."""

    directory: str = Field(description="Made if it is not there; processes may share it.")
    max_bytes: Bytes = Field(default=DEFAULT_MAX_BYTES, description="What all files in it may take.")
    part_bytes: Bytes = Field(default=DEFAULT_PART_BYTES, description="SSTs are read from the store in such parts.")

    @model_validator(mode="after")
    def _is_possible(self) -> "DiskCacheSection":
        try:
            self.options()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def options(self) -> DiskCacheOptions:
        """What the engine takes."""
        return DiskCacheOptions(self.directory, self.max_bytes, self.part_bytes)
