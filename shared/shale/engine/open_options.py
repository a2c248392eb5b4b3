"""The keyword arguments of ``Db.open``, ``DbReader.open`` and ``Admin``: their names, types and parsing.

The blocking classes of ``shale.sync`` take the same.  Every option of ``DbOptions`` and ``ReaderOptions`` is a keyword;
a duration loses its unit there: ``flush_interval="250ms"`` sets ``flush_interval_s``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypedDict, TypeVar, cast, get_args
from uuid import UUID

from shale.core.argument_types import require_attributes
from shale.core.settings_values import Duration, Size, parse_duration_ms, parse_duration_s, parse_size
from shale.core.suggestions import invalid_choice, unknown_option
from shale.engine.cache_settings import DiskCacheSetting, parse_disk_cache
from shale.engine.location import DatabaseLocation, resolve
from shale.env import Env
from shale.errors import InvalidRequestError, WrongType
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BloomPolicy, PrefixExtractor
from shale.iter.merge_operator import MergeOperator
from shale.sst.budget import MemoryBudget
from shale.store.location import UrlOrPath
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.store.wal_backend import WalBackend
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, Compression, KeyRange, ManifestVersion


class ConnectOptions(TypedDict, total=False):
    """How a handle reaches its database, and what it runs on.

    wal_store: the store of the WAL, if it is not in ``store``.
    wal: the backend that keeps the WAL, instead of a store; fixed when the database is created.
    env: clock, randomness, ids and CPU; the real ones by default.
    metrics: gets the metrics of the handle; by default they are not exported.
    store_options: credentials, timeouts and retries of the stores; by default from the variables that the daemons
        read, ``SHALE_STORE__ENDPOINT`` and others, and from the places where the cloud's own tools look.
    block_transformer: applied to all sections of SSTs and WAL files, such as ``AesGcm``; every process that reads or
        compacts the database needs the same one.
    manifest_write_version: 1 for a database that processes before SlateDB 0.12 still read; its segments and parallel
        WAL files need 2.
    open_timeout: how long ``open`` may take, 60 s by default; a store that answers nothing is given up after 15 s.
        ``None``: no limit.
    """

    wal_store: UrlOrPath | ObjectStore | None
    wal: WalBackend | None
    env: Env | None
    metrics: Metrics | None
    store_options: StoreOptions | None
    block_transformer: BlockTransformer | None
    manifest_write_version: ManifestVersion
    open_timeout: Duration | None


class DbOpenOptions(ConnectOptions, total=False):
    """The keywords of ``Db.open``: those of ``ConnectOptions``, and single options of ``DbOptions``."""

    flush_interval: Duration | None
    wal_flush_bytes: Size | None
    skip_memtable_bytes: Size | None
    manifest_poll_interval: Duration
    manifest_update_timeout: Duration
    l0_sst_size_bytes: Size
    max_wal_flushes_before_l0_flush: int
    l0_max_ssts: int
    l0_max_ssts_per_key: int
    l0_flush_parallelism: int
    max_unflushed_bytes: Size
    stall_timeout: Duration | None
    max_transaction_history_bytes: Size
    wal_enabled: bool
    wal_epoch_metadata: bool
    max_parallel_writes: int | None
    wal_ack: str
    wal_stall_limit: Duration
    probe_max_staleness: Duration
    missing_boundary: str
    boundary_files_enabled: bool
    compression: Compression | Literal["none", "snappy", "zlib", "lz4", "zstd"] | None
    block_size_bytes: Size
    min_filter_keys: int
    filter_policies: Sequence[BloomPolicy] | None
    merge_operator: MergeOperator | str | None
    segment_extractor: PrefixExtractor | None
    default_ttl: Duration | None
    writer_checkpoint: bool
    writer_checkpoint_lifetime: Duration
    writer_endpoint: str | None
    checkpoint_flush_timeout: Duration | None
    max_key_bytes: Size
    block_cache_bytes: Size | None
    cache: MemoryBudget | None
    disk_cache: DiskCacheSetting
    compactor: bool | None
    gc: bool | None
    max_background_jobs: int
    create_if_missing: bool
    take_over: bool
    enforce_visible_range: KeyRange | None


class ReaderOpenOptions(ConnectOptions, total=False):
    """The keywords of ``DbReader.open``: those of ``ConnectOptions``, and single options of ``ReaderOptions``."""

    checkpoint: UUID | str | None
    follow_latest: bool
    manifest_poll_interval: Duration
    checkpoint_lifetime: Duration | None
    max_memtable_bytes: Size
    max_replayed_bytes: Size | None
    skip_wal_replay: bool
    allow_wal_gap: bool
    defer_checkpoint_release: bool
    merge_operator: MergeOperator | str | None
    filter_policies: Sequence[BloomPolicy]
    segment_extractor: PrefixExtractor | None
    block_cache_bytes: Size | None
    cache: MemoryBudget | None
    disk_cache: DiskCacheSetting
    read_ahead_bytes: Size
    probe_max_staleness: Duration
    enforce_visible_range: KeyRange | None


CONNECT_NAMES = tuple(ConnectOptions.__annotations__)
DB_NAMES = tuple(DbOpenOptions.__annotations__)
READER_NAMES = tuple(ReaderOpenOptions.__annotations__)
OPEN_PARAMETERS = ("store", "path")
"""Parameters that every ``open`` has beside its options; suggested for misspelled names, too."""


_CONNECT_TYPES: Mapping[str, tuple[Sequence[str], str]] = {
    "env": (("clock", "rng", "ids"), "shale.Env.system(), or leave it out"),
    "metrics": (("counter", "gauge"), "shale.telemetry.metrics.Metrics(), or leave it out"),
    "block_transformer": (("encode", "decode"), "an object such as shale.AesGcm({'k1': key})"),
}


class OpenArguments(NamedTuple):
    """The location of a database, and what its handle runs on; ``None``: the system's environment, private metrics."""

    location: DatabaseLocation
    env: Env | None
    metrics: Metrics | None

    @classmethod
    def of(
        cls,
        where: UrlOrPath | None,
        store: UrlOrPath | ObjectStore | None,
        path: UrlOrPath | None,
        options: ConnectOptions,
    ) -> "OpenArguments":
        """Parse the arguments of ``open``.

        Raises:
            InvalidRequestError: an argument is missing, superfluous or malformed.
        """
        location = resolve(
            where,
            store=store,
            path=path,
            wal_store=options.get("wal_store"),
            wal=options.get("wal"),
            store_options=options.get("store_options"),
            block_transformer=options.get("block_transformer"),
        )
        for name, (attributes, wanted) in _CONNECT_TYPES.items():
            if (value := options.get(name)) is not None:
                require_attributes(name, value, attributes, wanted)
        version = options.get("manifest_write_version", MANIFEST_VERSION)
        if version not in get_args(ManifestVersion):
            raise InvalidRequestError(f"manifest_write_version: {version!r} is unknown: choose 1 or 2")
        if version != MANIFEST_VERSION:
            location = replace(location, manifest_write_version=version)
        if "open_timeout" in options:
            location = replace(location, open_timeout_s=_open_timeout_s(options["open_timeout"]))
        return cls(location, options.get("env"), options.get("metrics"))


class EngineOptions(Protocol):
    """A dataclass of options that can be built from keywords."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build the options; see ``DbOptions.from_keywords``."""
        ...


def _open_timeout_s(timeout: Duration | None) -> float | None:
    return None if timeout is None else parse_duration_s(timeout, name="open_timeout")


Options = TypeVar("Options", bound=EngineOptions)


def choose_options(kind: type[Options], given: Options | None, keywords: Mapping[str, object]) -> Options:
    """Return the options of a call: all in one value, or built from its keywords.

    Args:
        kind: the class of the options.
        given: the argument ``options``.
        keywords: all keywords of the call; those of ``ConnectOptions`` are left out.

    Raises:
        UnknownOption: there is no option of that name.
        InvalidRequestError: an impossible value, or both ways were used.
    """
    settings = {name: value for name, value in keywords.items() if name not in CONNECT_NAMES}
    from_keywords = kind.from_keywords(settings)
    if given is None:
        return from_keywords
    if not isinstance(given, kind):
        raise WrongType(f"options is of type {type(given).__name__}: give shale.{kind.__name__}(…), or single options")
    if settings:
        raise InvalidRequestError(f"options and {', '.join(settings)} were given: use one or the other")
    return given


def option_values(kind: type[EngineOptions], known: Sequence[str], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Parse keywords into the values of an options class, by field.

    Args:
        kind: the options class.
        known: the keywords of its ``open``, for suggestions.
        keywords: names with or without the unit of a duration; durations and sizes may be text.

    Raises:
        UnknownOption: there is no option of that name.
        InvalidRequestError: an impossible value, or an option given twice; the message names the option.
    """
    types = {field.name: field.type for field in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in keywords.items():
        field = next((each for each in (f"{name}_s", f"{name}_ms", name) if each in types), None)
        if field is None:
            raise unknown_option(name, (*known, *OPEN_PARAMETERS))
        if field in values:
            raise InvalidRequestError(f"{name}: given twice")
        is_none = value is None and NoneType in get_args(types[field])
        values[field] = None if is_none else _checked(name, types[field], _parse(name, field, value))
    return values


def require_parts(operator: object, extractor: object, cache: object) -> None:
    """Require that options which are objects can be used, before a writer fences another one in vain.

    Raises:
        InvalidRequestError: no merge operator has this name.
        WrongType: the object lacks what its option needs.
    """
    if operator is not None:
        from shale.merge_operators import require_operator

        require_operator(operator)
    if extractor is not None:
        wanted = "an object such as shale.DelimitedPrefix"
        require_attributes("segment_extractor", extractor, ("name", "prefix_len"), wanted)
    if cache is not None:
        require_attributes("cache", cache, ("of_thread",), "shale.MemoryBudget(bytes), or use block_cache_bytes")


_PLAIN_TYPES: Mapping[Any, type] = {
    kind: plain for plain in (bool, int, str) for kind in (plain, cast("Any", plain) | None)
}


def _checked(name: str, kind: Any, value: Any) -> Any:
    """Return a value if it has the plain type of its option; values of other types are checked where they are used."""
    plain = _PLAIN_TYPES.get(kind)
    is_bool = isinstance(value, bool)
    has_type = is_bool if plain is bool else not is_bool and hasattr(value, "__index__" if plain is int else "encode")
    if plain is None or has_type:
        return value
    raise WrongType(f"{name}={value!r} is of type {type(value).__name__}: give a value of type {plain.__name__}")


def _parse(name: str, field: str, value: Any) -> Any:
    if field == f"{name}_s":
        return parse_duration_s(value, name=name)
    if field == f"{name}_ms":
        return parse_duration_ms(value, name=name)
    if name.endswith("_bytes"):
        return parse_size(value, name=name)
    if name == "compression":
        return _compression(value)
    if name == "disk_cache":
        return parse_disk_cache(value)
    if name == "filter_policies":
        return _filter_policies(value)
    return value


def _filter_policies(value: Any) -> tuple[BloomPolicy, ...]:
    policies = tuple(value) if isinstance(value, Iterable) else (value,)
    for each in policies:
        require_attributes("filter_policies", each, ("prefix_extractor",), "a list of shale.BloomPolicy(…)")
    return policies


def _compression(value: Compression | str | None) -> Compression:
    if value is None:
        return Compression.NONE
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).upper()]
    except KeyError:
        raise invalid_choice("compression", value, [each.name.lower() for each in Compression]) from None
