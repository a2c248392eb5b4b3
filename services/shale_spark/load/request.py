"""The arguments of ``load``, checked before anything is written."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypedDict, TypeVar, Unpack

from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import Duration, Size, parse_duration_ms, parse_size
from shale.engine.location import DatabaseLocation, resolve
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy
from shale.sst.options import SstOptions
from shale.types import Compression
from shale_spark.codecs import ValueCodec, value_codec
from shale_spark.load.rules import LIFETIME_MAX_MS, DuplicateKeys
from shale_spark.source.store_options import task_store_options

C = TypeVar("C", bound=StrEnum)


class LoadMode(StrEnum):
    """Into a new database, or into an existing one."""

    CREATE = "create"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumns:
    """The meaning of the DataFrame's columns.

    ``values``: one column of bytes or text; with a codec those that it takes, or all others if none are named.
    ``order_by``: of several rows with one key, that with the greatest is taken.
    """

    key: str = "key"
    values: tuple[str, ...] = ("value",)
    expire_at: str | None = None
    order_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One load.  ``partitions``: tasks, each of which makes at least one SST; ``None``: by the size of the rows."""

    where: DatabaseLocation
    mode: LoadMode
    fence: bool
    columns: LoadColumns
    codec: ValueCodec | None
    ttl_ms: int | None
    duplicates: DuplicateKeys
    dead_letters: str | None
    partitions: int | None
    sst_bytes: int
    sst: SstOptions


class LoadArguments(TypedDict, total=False):
    """The keywords of ``load``, which documents them; the defaults are those of ``BulkLoadOptions``."""

    key: str
    value: str | Sequence[str] | None
    value_format: str | None
    avro_schema: str | None
    ttl: Duration | None
    expire_at: str | None
    duplicates: str
    order_by: str | None
    mode: str
    fence: bool
    dead_letters: str | None
    partitions: int | None
    sst_bytes: Size
    block_size: Size
    compression: str
    min_filter_keys: int
    filter_policies: Sequence[BloomPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLoadOptions:
    """The keywords of ``load`` with their defaults."""

    key: str = "key"
    value: str | Sequence[str] | None = None
    value_format: str | None = None
    avro_schema: str | None = None
    ttl: Duration | None = None
    expire_at: str | None = None
    duplicates: str = "error"
    order_by: str | None = None
    mode: str = "create"
    fence: bool = False
    dead_letters: str | None = None
    partitions: int | None = None
    sst_bytes: Size = "256MiB"
    block_size: Size = "4KiB"
    compression: str = "none"
    min_filter_keys: int = 1000
    filter_policies: Sequence[BloomPolicy] = (BloomPolicy(),)


def load_request(where: DatabaseLocation | str, **arguments: Unpack[LoadArguments]) -> LoadRequest:
    """Check the arguments of ``load``, which documents them.

    Raises:
        InvalidRequestError: one of them is invalid, or two contradict each other.
    """
    given = BulkLoadOptions(**arguments)
    place = where if isinstance(where, DatabaseLocation) else resolve(where, store_options=task_store_options({}))
    if not isinstance(place.store, str) or place.store.startswith("memory:"):
        raise InvalidRequestError("executors cannot reach a store in the memory of this process: name one by its URL")
    chosen = _choice(LoadMode, given.mode, "mode")
    repeated = _choice(DuplicateKeys, given.duplicates, "duplicates")
    if repeated is DuplicateKeys.LAST and given.order_by is None:
        raise InvalidRequestError('duplicates="last" needs order_by: the rows of a DataFrame are unordered')
    if repeated is DuplicateKeys.ERROR and given.order_by is not None:
        raise InvalidRequestError('order_by chooses between rows of one key, which is duplicates="last"')
    if given.fence and chosen is LoadMode.CREATE:
        raise InvalidRequestError('fence is for mode="append": a new database has no writer')
    if given.partitions is not None and given.partitions < 1:
        raise InvalidRequestError(f"partitions: {given.partitions} is less than 1")
    return LoadRequest(
        where=place,
        mode=chosen,
        fence=given.fence,
        columns=LoadColumns(
            key=given.key,
            values=_values(given.value, given.value_format),
            expire_at=given.expire_at,
            order_by=given.order_by,
        ),
        codec=None if given.value_format is None else value_codec(given.value_format, avro_schema=given.avro_schema),
        ttl_ms=None if given.ttl is None else lifetime_ms(given.ttl),
        duplicates=repeated,
        dead_letters=given.dead_letters,
        partitions=given.partitions,
        sst_bytes=_positive(given.sst_bytes, "sst_bytes"),
        sst=SstOptions(
            block_size_bytes=_positive(given.block_size, "block_size"),
            compression=_compression(given.compression),
            min_filter_keys=given.min_filter_keys,
            filter_policies=tuple(given.filter_policies),
            transformer=place.block_transformer,
        ),
    )


def lifetime_ms(ttl: Duration) -> int:
    """Return the lifetime of all rows in milliseconds.

    Raises:
        InvalidRequestError: no duration, or longer than any row can live.
    """
    found = parse_duration_ms(ttl, name="ttl")
    if found > LIFETIME_MAX_MS:
        raise InvalidRequestError(f"ttl: {ttl!r} is longer than 2**62 ms: leave it out for rows that never expire")
    return found


def _values(value: str | Sequence[str] | None, value_format: str | None) -> tuple[str, ...]:
    if value is None:
        return ("value",) if value_format is None else ()
    names = (value,) if isinstance(value, str) else tuple(value)
    if value_format is None and len(names) != 1:
        raise InvalidRequestError(f"value: {len(names)} columns make no value without a value_format")
    return names


def _choice(kind: type[C], text: str, name: str) -> C:
    try:
        return kind(text)
    except ValueError:
        raise InvalidRequestError(f"{name}: {text!r} is none of {', '.join(kind)}") from None


def _positive(size: Size, name: str) -> int:
    parsed = parse_size(size, name=name)
    if parsed < 1:
        raise InvalidRequestError(f"{name}: {size!r} is less than 1 byte")
    return parsed


def _compression(text: str) -> Compression:
    try:
        return Compression[text.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Compression)
        raise InvalidRequestError(f"compression: {text!r} is none of {known}") from None
