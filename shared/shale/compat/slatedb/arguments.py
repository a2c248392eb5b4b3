"""Arguments of calls, checked like in the binding and converted for the engine."""

from typing import Any, TypedDict

from shale.compat.slatedb.errors import invalid
from shale.compat.slatedb.handles import unsigned
from shale.compat.slatedb.types.enums import DurabilityLevel, IterationOrder, Ttl
from shale.compat.slatedb.types.options import ReadOptions, ScanOptions, WriteOptions
from shale.compat.slatedb.types.records import KeyRange, KeyValue
from shale.core.bytes_like import BytesLike
from shale.core.ttl import NEVER, Never
from shale.engine.read.read_point import Durability
from shale.types import Row

READ_AHEAD_BYTES_MIN = 64 * 1024
"""Scans that ask for less use the engine's default; SlateDB's default, one byte, means the same there."""


class Lifetime(TypedDict, total=False):
    """Keyword arguments of writes."""

    ttl: str | Never
    expire_at: int


class LookupArguments(TypedDict):
    """Keyword arguments of lookups."""

    durability: Durability
    cache_blocks: bool


def checked_key(key: BytesLike) -> bytes:
    """Return a key as bytes.

    Raises:
        TypeError: not bytes.
        Error: it is empty.
    """
    plain = key if type(key) is bytes else bytes(memoryview(key))
    if not plain:
        raise invalid("key cannot be empty")
    return plain


def checked_value(value: BytesLike) -> bytes:
    """Return a value as bytes.

    Raises:
        TypeError: not bytes.
    """
    return value if type(value) is bytes else bytes(memoryview(value))


def checked_range(key_range: KeyRange) -> KeyRange:
    """Return a range that can hold a key.

    Raises:
        Error: its start is above its end, or it is empty.
    """
    start, end = key_range.start, key_range.end
    if start is not None and end is not None:
        if start > end:
            raise invalid("range start must not be greater than range end")
        if start == end and not (key_range.start_inclusive and key_range.end_inclusive):
            raise invalid("range must be non-empty")
    return key_range


def bounds_of(key_range: KeyRange, prefix: bytes = b"") -> tuple[bytes | None, bytes | None]:
    """Return first key and end of a range, whose bounds continue ``prefix``.

    Raises:
        Error: see ``checked_range``.
    """
    checked_range(key_range)
    start, end = key_range.start, key_range.end
    first = None if start is None else prefix + start + (b"" if key_range.start_inclusive else b"\0")
    stop = None if end is None else prefix + end + (b"\0" if key_range.end_inclusive else b"")
    return first, stop


def durability_of(level: DurabilityLevel) -> Durability:
    """Return the durability of a level."""
    return "durable" if level is DurabilityLevel.REMOTE else "memory"


def scan_arguments(options: ScanOptions | None) -> dict[str, Any]:
    """Return keyword arguments of ``Reads.scan``."""
    if options is None:
        return {"cache_blocks": False}
    read_ahead = options.read_ahead_bytes
    return {
        "durability": durability_of(options.durability_filter),
        "reverse": options.order is IterationOrder.DESCENDING,
        "read_ahead_bytes": read_ahead if read_ahead >= READ_AHEAD_BYTES_MIN else None,
        "max_fetch_tasks": max(options.max_fetch_tasks, 1),
        "cache_blocks": options.cache_blocks,
    }


def seqnum_of(options: WriteOptions | None) -> int | None:
    """Return the requested sequence number of a commit; ``None`` for the next one.

    Raises:
        ValueError: a number out of range.
    """
    return None if options is None else unsigned(options.seqnum, "u64", 64) or None


def lookup_arguments(options: ReadOptions) -> LookupArguments:
    """Return keyword arguments of ``Reads.get`` and ``Reads.get_row``."""
    return {"durability": durability_of(options.durability_filter), "cache_blocks": options.cache_blocks}


def lifetime(ttl: Ttl) -> Lifetime:
    """Return the lifetime of a write.

    Raises:
        ValueError: a number out of range.
    """
    match ttl:
        case Ttl.NO_EXPIRY():
            return {"ttl": NEVER}
        case Ttl.EXPIRE_AFTER_MILLIS():
            (after_ms,) = ttl._values
            return {"ttl": f"{unsigned(after_ms, 'u64', 64)}ms"}
        case Ttl.EXPIRE_AT_MILLIS():
            (at_ms,) = ttl._values
            if not -(1 << 63) <= at_ms < 1 << 63:
                raise ValueError(f"i64 requires {-(1 << 63)} <= value < {1 << 63}")
            return {"expire_at": at_ms}
        case _:
            return {}


def key_value(row: Row) -> KeyValue:
    """Convert a row."""
    return KeyValue(key=row.key, value=row.value, seq=row.seq, create_ts=row.create_ts or 0, expire_ts=row.expire_ts)
