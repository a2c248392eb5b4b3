"""Reads rows for the replies to one client, with memory for large ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from shale.engine.read.reads import Reads
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.types import Row

if TYPE_CHECKING:
    from shale.resp.backend import Backend

_COPIES_OF_VALUE = 2
"""The value, and the reply."""


class RowReader:
    """Reads rows.  ``reserved`` is the memory of large replies while they are made."""

    __slots__ = ("_backend", "reserved")

    def __init__(self, backend: "Backend") -> None:
        self._backend = backend
        self.reserved = backend.memory.scans.share()

    async def reserve(self, size_bytes: int) -> None:
        """Wait for the memory of a large reply, or of a scan; it is kept until the reply is written.

        Nothing else is kept during the wait: two clients that each keep a part might wait for each other.  So the
        caller has dropped what it read.  Of more memory than there is, all is taken.
        """
        if not self._has_reserved(size_bytes):
            self.reserved.reduce_to(0)
            self._backend.memory.release_values()
            await self.reserved.take(min(size_bytes, self._backend.memory.scans.capacity_bytes))

    def _has_reserved(self, size_bytes: int) -> bool:
        """Return whether there is memory for a reply or a scan."""
        return self.reserved.size_bytes >= min(size_bytes, self._backend.memory.scans.capacity_bytes)

    async def row_for_reply(self, reads: Reads, key: bytes, *, length_of: Callable[[bytes], int] = len) -> Row | None:
        """Return the row of a key, with memory for the reply that has its value, or a part of it; see ``live_row``.

        Args:
            reads: where to read.
            key: the key.
            length_of: returns how many bytes of a value are in the reply.
        """
        while True:
            row = await self.live_row(reads, key)
            size_bytes = 0 if row is None else _COPIES_OF_VALUE * length_of(row.value)
            if size_bytes <= _COPIES_OF_VALUE * LARGE_VALUE_BYTES or self._has_reserved(size_bytes):
                return row
            row = None
            await self.reserve(size_bytes)

    async def live_row(self, reads: Reads, key: bytes) -> Row | None:
        """Return the row of a key, unless it has expired."""
        row = await reads.get_row(key)
        if row is None or row.expire_ts is None or row.expire_ts > self._backend.env.clock.now_ms():
            return row
        # A merged row has the earliest expiry of its operands: without that operand there may still be a value.
        return await reads.get_row(key, hide_expired=True)
