"""One memory budget for the blocks, indexes and filters of all databases of a process.

A cache belongs to one thread, because lookup kernels walk its tables without locks.  So each thread has a cache of its
own, and all count against the same budget.  A cache that needs memory evicts its own entries first.  If it holds less
than an even share, it also asks the largest cache to shrink, which that one does on its own event loop.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from shale.core.settings_values import Size, parse_size

DEFAULT_CAPACITY_BYTES = 256 * 1024 * 1024


LARGE_VALUE_BYTES = 1 << 20
"""Larger values take memory of their own while they are read and sent."""
COPIES_OF_VALUE = 3
"""Of a large value while it is read: the stored block, the decoded block, and the value."""


class CacheShare(Protocol):
    """A cache that counts against a budget."""

    @property
    def used_bytes(self) -> int:
        """The bytes it holds; any thread may read this."""
        ...

    def make_room(self) -> None:
        """Evict until the budget holds."""
        ...

    def request_shrink(self, size_bytes: int) -> None:
        """Make the cache shrink in its own thread; any thread may call this."""
        ...

    def call(self, work: Callable[[], None]) -> None:
        """Run a function in the cache's own thread; any thread may call this."""
        ...


class LargeValues(Protocol):
    """Memory for large values that are being read and sent."""

    async def take(self, size_bytes: int) -> None:
        """Take memory for the present task, until it has ended, instead of what it had; wait until there is some."""
        ...

    @property
    def held_bytes(self) -> int:
        """The memory of the present task."""
        ...

    @property
    def is_contended(self) -> bool:
        """Whether a task waits for memory."""
        ...

    def release(self) -> None:
        """Give back the memory of the present task."""
        ...


class MemoryBudget:
    """A number of bytes, and the caches that share them."""

    def __init__(
        self,
        capacity_bytes: Size = DEFAULT_CAPACITY_BYTES,
        *,
        large_values: LargeValues | None = None,
        scanned_values: LargeValues | None = None,
    ) -> None:
        """Start without caches; with a capacity of 0 they keep nothing.

        Args:
            capacity_bytes: for all caches.
            large_values: bounds the blocks that are too large for a cache while they are read; ``None``: no bound.
            scanned_values: bounds those that scans hold, one of each source; ``None``: no bound.

        Raises:
            InvalidRequestError: the capacity is negative, or not a size.
        """
        self.capacity_bytes = parse_size(capacity_bytes, name="capacity_bytes")
        # Replaced, never changed: threads iterate over it while others join.
        self._shares: tuple[weakref.ref[CacheShare], ...] = ()
        self.large_values = large_values
        self.scanned_values = scanned_values
        self._joining = threading.Lock()
        self.of_thread = threading.local()
        """Each thread's own cache; see ``shale.sst.cache.thread_cache``."""

    async def admit(self, size_bytes: int) -> None:
        """Wait until there is memory for reading blocks of this size, if they are large and it is bounded.

        It is instead of what the present task had, unless that is as much.  Blocks that one task reads in several tasks
        are admitted together, in that task.

        Raises:
            UnavailableError: there was no memory for too long.
        """
        values, needed_bytes = self.large_values, COPIES_OF_VALUE * size_bytes
        if values is not None and size_bytes > LARGE_VALUE_BYTES and values.held_bytes < needed_bytes:
            await values.take(needed_bytes)

    @property
    def used_bytes(self) -> int:
        """The bytes that all caches hold."""
        return sum(share.used_bytes for share in self._live_shares())

    @property
    def is_exceeded(self) -> bool:
        """Whether some cache must evict."""
        used_bytes = 0
        for ref in self._shares:  # after every block that is read
            share = ref()
            if share is not None:
                used_bytes += share.used_bytes
        return used_bytes > self.capacity_bytes

    def resize(self, capacity_bytes: int) -> None:
        """Change the capacity; caches shrink in their own threads, at the latest with their next read."""
        assert capacity_bytes >= 0
        self.capacity_bytes = capacity_bytes
        for share in self._live_shares():
            share.call(share.make_room)

    def join(self, share: CacheShare) -> None:
        """Count a cache until it is dropped."""
        with self._joining:
            self._shares = (*(ref for ref in self._shares if ref() is not None), weakref.ref(share))

    def request_room(self, share: CacheShare) -> None:
        """If this cache holds less than an even share, make the largest one shrink to its share."""
        shares = self._live_shares()
        even_bytes = self.capacity_bytes // len(shares)
        largest = max(shares, key=lambda other: other.used_bytes)
        if share.used_bytes < even_bytes < largest.used_bytes and largest is not share:
            largest.request_shrink(even_bytes)

    def _live_shares(self) -> list[CacheShare]:
        return [share for ref in self._shares if (share := ref()) is not None]
