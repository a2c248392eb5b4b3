"""What all databases of a process share unless they are opened with something of their own (``shale.configure``)."""

import threading

from shale.env import Clock
from shale.sst.budget import MemoryBudget
from shale.sst.cache import BlockCache
from shale.sst.disk_cache import DiskCache, DiskCacheOptions


class ProcessCache:
    """The memory for blocks, indexes and filters, and the disk caches that are in use."""

    def __init__(self) -> None:
        self.budget = MemoryBudget()
        self.disk_default: DiskCacheOptions | None = None
        self._disks: dict[DiskCacheOptions, DiskCache] = {}
        self._lock = threading.Lock()

    def memory(self, own_bytes: int | None = None, budget: MemoryBudget | None = None) -> BlockCache:
        """The part of a database in a budget that was given, a cache of so many bytes, or its part in the process's."""
        if budget is not None:
            return budget.cache()
        return self.budget.cache() if own_bytes is None else BlockCache(own_bytes)

    def disk(self, options: DiskCacheOptions | None, clock: Clock) -> DiskCache | None:
        """The disk cache of a database that was opened with these options; ``None``: it has none.

        Raises:
            InvalidRequestError: the directory cannot be made.
        """
        chosen = options if options is not None else self.disk_default
        if chosen is None:
            return None
        with self._lock:
            if chosen not in self._disks:
                self._disks[chosen] = DiskCache(chosen, clock)
            return self._disks[chosen]


PROCESS_CACHE = ProcessCache()
"""The one of this process."""
