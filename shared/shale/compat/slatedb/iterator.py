"""``DbIterator``: the rows of a scan, one by one or in batches."""

import asyncio

from shale.compat.slatedb.arguments import checked_key, key_value
from shale.compat.slatedb.errors import Invalid, translates
from shale.compat.slatedb.handles import Handle, lowered
from shale.compat.slatedb.values import KeyValue
from shale.engine.scan import Scan


class DbIterator(Handle):
    """A scan.  Calls of several tasks follow each other."""

    __slots__ = ("_is_backward", "_lock", "_scan")

    _scan: Scan
    _lock: asyncio.Lock
    _is_backward: bool

    @translates
    async def next(self) -> KeyValue | None:
        """The next row; ``None`` at the end."""
        async with self._lock:
            async for row in self._scan:
                return key_value(row)
            return None

    @translates
    async def next_batch(self, max: int) -> list[KeyValue]:  # noqa: A002 - the binding's name
        """Up to ``max`` rows, fewer at the end."""
        wanted = lowered(max, "u32", 32)
        async with self._lock:
            return [key_value(row) for row in await self._scan.next_batch(wanted)] if wanted else []

    @translates
    async def seek(self, key: bytes) -> None:
        """Go on at the first row at or behind a key.

        Raises:
            Error: the key lies outside the range, or not behind the last row, or the scan goes backward.
        """
        wanted = checked_key(key)
        async with self._lock:
            if self._is_backward:
                raise Invalid("Invalid error: seek is not supported for descending scans")
            await self._scan.seek(wanted)


def iterator_of(scan: Scan, *, is_backward: bool) -> DbIterator:
    """The iterator over a scan of the engine."""
    iterator = DbIterator._blank_here()
    iterator._scan = scan
    iterator._lock = asyncio.Lock()
    iterator._is_backward = is_backward
    return iterator
