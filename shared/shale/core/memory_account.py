"""What the parts of one process hold in memory, against one limit."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class MemoryPart(StrEnum):
    """A part of a process; a label of ``shale_memory_bytes``."""

    MEMTABLES = "memtables"
    CACHE = "cache"
    TRANSACTIONS = "transactions"
    REQUESTS = "requests"
    RESPONSES = "responses"
    SCANS = "scans"
    CONNECTIONS = "connections"
    COMPACTION = "compaction"
    WAL_ROWS = "wal_rows"


class ElasticCache(Protocol):
    """A cache that can shrink while it is in use."""

    capacity_bytes: int

    @property
    def used_bytes(self) -> int:
        """The bytes that it holds."""
        ...

    def resize(self, capacity_bytes: int) -> None:
        """Change the capacity."""
        ...


class MemoryAccount:
    """The memory of one process: meters of its parts, its cache, and whether it is full.

    A meter reads a counter that its part keeps anyway, so that writes and reads pay nothing.

    Args:
        limit_bytes: of the whole process.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_full = False
        """Whether writes are refused: the process holds as much as it may."""
        self.refusals = 0
        """Requests that were refused because memory was full."""
        self.dropped_connections = 0
        """Connections that ended because responses that were not read took too much memory."""
        self.cache: ElasticCache | None = None
        """Shrinks first."""
        self._meters: dict[MemoryPart, tuple[Callable[[], int], ...]] = {}

    def add_meter(self, part: MemoryPart, used_bytes: Callable[[], int]) -> None:
        """Count what a function returns as memory of a part."""
        self._meters[part] = (*self._meters.get(part, ()), used_bytes)

    def add_cache(self, cache: ElasticCache) -> None:
        """Let a cache shrink when memory is full; count what it holds."""
        self.cache = cache
        self.add_meter(MemoryPart.CACHE, lambda: cache.used_bytes)

    def used_bytes(self, part: MemoryPart) -> int:
        """Return what a part holds now."""
        return sum(meter() for meter in self._meters.get(part, ()))

    @property
    def total_bytes(self) -> int:
        """What all parts hold now."""
        return sum(self.used_bytes(part) for part in self._meters)

    def refuse(self) -> None:
        """Count a refused request."""
        self.refusals += 1
