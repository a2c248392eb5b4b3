"""What a scan reads: the arguments of ``scan`` as one value."""

from typing import NamedTuple

from shale.core.bytes_like import BytesLike, not_bytes
from shale.sst.spans.scan_room import ScanRoom
from shale.types import EVERYTHING, KeyRange, excluded, included


class ScanPlan(NamedTuple):
    """What a scan reads, and how.

    Args:
        key_range: the keys.
        max_seq: newer versions are invisible; ``None``: all versions are visible.
        prefix: all keys in the range begin with it; lets filters exclude SSTs.
        reverse: from the greatest key down to the smallest.
        expected_rows: how many rows the caller probably takes; ``None``: many.
        now_ms: rows that have expired by then are invisible; ``None``: expired rows are visible.
        read_ahead_bytes: size of one request; ``None``: the setting of the handle.
        cache_blocks: short reads fill the block cache.
        reads_all: the caller takes all rows and waits for the last.
        fetch_tasks: requests of ``read_ahead_bytes`` at the same time, for each SST.
        room: memory for large values; ``None``: it is not bounded.
    """

    key_range: KeyRange = EVERYTHING
    max_seq: int | None = None
    prefix: bytes | None = None
    reverse: bool = False
    expected_rows: int | None = None
    now_ms: int | None = None
    read_ahead_bytes: int | None = None
    cache_blocks: bool = True
    reads_all: bool = False
    fetch_tasks: int = 1
    room: ScanRoom | None = None


def scan_range(
    *,
    prefix: BytesLike | None = None,
    start: BytesLike | None = None,
    stop: BytesLike | None = None,
    start_inclusive: bool = True,
    stop_inclusive: bool = False,
) -> KeyRange:
    """Return the keys that begin with ``prefix`` and lie between ``start`` and ``stop``; ``None`` is no limit.

    Raises:
        InvalidRequestError: a bound is not bytes-like.
    """
    wanted = KeyRange.half_open(_bound(start, "start"), _bound(stop, "stop"))
    if not start_inclusive and wanted.first_key is not None:
        wanted = KeyRange(excluded(wanted.first_key), wanted.end)
    if stop_inclusive and wanted.end_key is not None:
        wanted = KeyRange(wanted.start, included(wanted.end_key))
    begin = _bound(prefix, "prefix")
    return wanted if begin is None else wanted.intersect(KeyRange.with_prefix(begin))


def _bound(key: object, name: str) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, BytesLike):
        raise not_bytes(name, key)
    return bytes(key)
