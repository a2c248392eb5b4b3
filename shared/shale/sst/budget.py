"""One bound for everything that a process keeps of SSTs in memory: blocks, indexes and filters of all its databases.

A cache belongs to one thread, because lookup kernels walk its tables without locks.  So the budget hands every thread
a cache of its own, and all of them count against the same number.  Who needs room drops what is its own.  A thread that
has less than an even part asks, besides, the one with most to give some back, which happens in that one's event loop.
"""

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shale.sst.cache import BlockCache

DEFAULT_CAPACITY_BYTES = 256 * 1024 * 1024


class MemoryBudget:
    """A number of bytes, and the caches that share it."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        """Keep nothing yet; a capacity of 0 keeps nothing ever."""
        assert capacity_bytes >= 0
        self.capacity_bytes = capacity_bytes
        # Replaced and never changed, because threads look through it while others join.
        self._shares: tuple[weakref.ref[BlockCache], ...] = ()
        self._joining = threading.Lock()
        self._of_thread = threading.local()

    @property
    def used_bytes(self) -> int:
        """What all caches hold."""
        return sum(share.used_bytes for share in self._living())

    @property
    def is_exceeded(self) -> bool:
        """Whether somebody has to give something up."""
        return self.used_bytes > self.capacity_bytes

    def cache(self) -> "BlockCache":
        """The cache of the calling thread, made with the first call."""
        from shale.sst.cache import BlockCache

        cache: BlockCache | None = getattr(self._of_thread, "cache", None)
        if cache is None:
            cache = self._of_thread.cache = BlockCache(self)
        cache.loop = _running_loop()
        return cache

    def resize(self, capacity_bytes: int) -> None:
        """Change the bound; caches shrink in their own threads, with their next read at the latest."""
        assert capacity_bytes >= 0
        self.capacity_bytes = capacity_bytes
        for share in self._living():
            share.call(share.make_room)

    def join(self, share: "BlockCache") -> None:
        """Count a cache; it leaves when nobody holds it any more."""
        with self._joining:
            self._shares = (*(ref for ref in self._shares if ref() is not None), weakref.ref(share))

    def ask_for(self, share: "BlockCache") -> None:
        """If this cache has less than an even part, let the largest one give back what it has above its own."""
        shares = self._living()
        even_bytes = self.capacity_bytes // len(shares)
        largest = max(shares, key=lambda other: other.used_bytes)
        if share.used_bytes < even_bytes < largest.used_bytes and largest is not share:
            largest.ask(even_bytes)

    def _living(self) -> "list[BlockCache]":
        return [share for ref in self._shares if (share := ref()) is not None]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
