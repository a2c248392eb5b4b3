"""The caches that all databases of a process share by default (``shale.configure``)."""

import threading
from typing import TYPE_CHECKING

from shale.env import Clock, Env
from shale.sst.budget import MemoryBudget
from shale.sst.cache import BlockCache, thread_cache
from shale.sst.disk_cache_options import DiskCacheOptions

if TYPE_CHECKING:
    from shale.sst.disk_cache import DiskCache
    from shale.store.port import ObjectStore, SstUploads


class ProcessCache:
    """The memory budget of a process and its open disk caches."""

    def __init__(self) -> None:
        self.budget = MemoryBudget()
        self.disk_default: DiskCacheOptions | None = None
        self._disks: dict[DiskCacheOptions, DiskCache] = {}
        self._lock = threading.Lock()

    def memory(self, own_bytes: int | None = None, budget: MemoryBudget | None = None) -> BlockCache:
        """Return the thread's cache in ``budget``, else one of ``own_bytes``, else its cache in the process."""
        if budget is not None:
            return thread_cache(budget)
        return thread_cache(self.budget) if own_bytes is None else BlockCache(own_bytes)

    def disk_options(self, options: DiskCacheOptions | None) -> DiskCacheOptions | None:
        """Return the options of a database opened with these; ``None``: it has no disk cache."""
        return options if options is not None else self.disk_default

    def preloading(self, options: DiskCacheOptions | None) -> DiskCacheOptions | None:
        """Return the same, if the database is to load SSTs into the disk cache when it is opened."""
        chosen = self.disk_options(options)
        return None if chosen is None or chosen.preload is None else chosen

    def uploads(self, store: "ObjectStore", options: DiskCacheOptions | None, env: Env) -> "SstUploads":
        """Return where new SSTs go: the store, and the disk cache, if there is one."""
        from shale.sst.disk_cache import CachingUploads

        disk = self.disk(options, env.clock)
        return store if disk is None else CachingUploads(store, store.url, disk, env)

    def disk(self, options: DiskCacheOptions | None, clock: Clock) -> "DiskCache | None":
        """Return the disk cache of a database opened with these options; ``None``: it has none.

        Raises:
            InvalidRequestError: the directory cannot be created.
        """
        chosen = self.disk_options(options)
        if chosen is None:
            return None
        chosen = chosen.shared
        from shale.sst.disk_cache import DiskCache

        with self._lock:
            if chosen not in self._disks:
                self._disks[chosen] = DiskCache(chosen, clock)
            return self._disks[chosen]


PROCESS_CACHE = ProcessCache()
"""The caches of this process."""
