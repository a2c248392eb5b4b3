"""What all databases of a process share unless they are opened with something of their own (``shale.configure``)."""

from shale.sst.budget import MemoryBudget
from shale.sst.cache import BlockCache

_budget = MemoryBudget()


def process_budget() -> MemoryBudget:
    """The memory for blocks, indexes and filters of all databases of this process."""
    return _budget


def cache_for(own_bytes: int | None) -> BlockCache:
    """A cache of so many bytes for one database alone, or its part of what the process has."""
    return _budget.cache() if own_bytes is None else BlockCache(own_bytes)
