"""The read calls that ``Db``, ``DbReader``, ``DbSnapshot`` and ``DbTransaction`` share, and their iterators."""

import asyncio

from shale.compat.slatedb.arguments import (
    bounds_of,
    checked_key,
    checked_value,
    key_value,
    lookup_arguments,
    scan_arguments,
)
from shale.compat.slatedb.errors import Invalid, raises_slatedb_errors
from shale.compat.slatedb.handles import Handle, unsigned
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.compat.slatedb.types.options import ReadOptions, ScanOptions
from shale.compat.slatedb.types.records import KeyRange, KeyValue
from shale.engine.read.reads import Reads
from shale.engine.scan.scan import Scan


class DbIterator(Handle):
    """A scan.  Concurrent calls are serialized."""

    __slots__ = ("_is_backward", "_lock", "_scan")

    _scan: Scan
    _lock: asyncio.Lock
    _is_backward: bool

    @raises_slatedb_errors
    async def next(self) -> KeyValue | None:
        """Return the next row; ``None`` at the end."""
        async with self._lock:
            async for row in self._scan:
                return key_value(row)
            return None

    @raises_slatedb_errors
    async def next_batch(self, max: int) -> list[KeyValue]:  # noqa: A002 - the binding's name
        """Return up to ``max`` rows, fewer at the end."""
        wanted = unsigned(max, "u32", 32)
        async with self._lock:
            return [key_value(row) for row in await self._scan.next_batch(wanted)] if wanted else []

    @raises_slatedb_errors
    async def seek(self, key: bytes) -> None:
        """Continue at the first row with a key at or above ``key``.

        Raises:
            Error: the key lies outside the range, or not after the last row, or the scan is descending.
        """
        wanted = checked_key(key)
        async with self._lock:
            if self._is_backward:
                raise Invalid("Invalid error: seek is not supported for descending scans")
            await self._scan.seek(wanted)


def iterator_of(scan: Scan, *, is_backward: bool) -> DbIterator:
    """Wrap a scan of the engine."""
    iterator = DbIterator._blank_here()
    iterator._scan = scan
    iterator._lock = asyncio.Lock()
    iterator._is_backward = is_backward
    return iterator


class DbReads(Handle):
    """Lookups and scans of ``_reads``."""

    __slots__ = ("_recording", "_source")

    _source: Reads
    _recording: MetricsBridge

    def _reads(self) -> Reads:
        """Return the source of reads.

        Raises:
            Error: it is closed.
        """
        return self._source

    @raises_slatedb_errors
    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        wanted = checked_key(key)
        self._recording.get(1)
        return await self._reads().get(wanted)

    @raises_slatedb_errors
    async def get_with_options(self, key: bytes, options: ReadOptions) -> bytes | None:
        """Return the value of a key at the durability of the options."""
        wanted = checked_key(key)
        self._recording.get(1)
        return await self._reads().get(wanted, **lookup_arguments(options))

    @raises_slatedb_errors
    async def get_key_value(self, key: bytes) -> KeyValue | None:
        """Return the row of a key."""
        wanted = checked_key(key)
        self._recording.get(1)
        row = await self._reads().get_row(wanted)
        return None if row is None else key_value(row)

    @raises_slatedb_errors
    async def get_key_value_with_options(self, key: bytes, options: ReadOptions) -> KeyValue | None:
        """Return the row of a key at the durability of the options."""
        wanted = checked_key(key)
        self._recording.get(1)
        row = await self._reads().get_row(wanted, **lookup_arguments(options))
        return None if row is None else key_value(row)

    @raises_slatedb_errors
    async def scan(self, range: KeyRange) -> DbIterator:  # noqa: A002 - the binding's name
        """Return the rows of a range."""
        return self._scan(range, b"", None)

    @raises_slatedb_errors
    async def scan_with_options(self, range: KeyRange, options: ScanOptions) -> DbIterator:  # noqa: A002
        """Return the rows of a range, in the order of the options."""
        return self._scan(range, b"", options)

    @raises_slatedb_errors
    async def scan_prefix(self, prefix: bytes, subrange: KeyRange) -> DbIterator:
        """Return the rows whose keys begin with a prefix; the bounds are of what follows it."""
        return self._scan(subrange, checked_value(prefix), None)

    @raises_slatedb_errors
    async def scan_prefix_with_options(self, prefix: bytes, subrange: KeyRange, options: ScanOptions) -> DbIterator:
        """Return the rows whose keys begin with a prefix, in the order of the options."""
        return self._scan(subrange, checked_value(prefix), options)

    def _scan(self, key_range: KeyRange, prefix: bytes, options: ScanOptions | None) -> DbIterator:
        start, stop = bounds_of(key_range, prefix)
        arguments = scan_arguments(options)
        self._recording.scan(1)
        scan = self._reads().scan(prefix=prefix or None, start=start, stop=stop, **arguments)
        return iterator_of(scan, is_backward=arguments.get("reverse", False))
