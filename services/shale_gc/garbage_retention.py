"""How long the collector in a writer's process keeps what nothing references (docs/how-to/embedded-services.md).

Readers in other processes that hold no checkpoint have a minute to finish.  A directory that grows beyond its live data
is worth more than that minute: the time shrinks with it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from shale.env import Clock
from shale.format.names import parse_wal_key, sst_key
from shale.gc.options import Task
from shale.types import Ulid

KEPT_MIN_S: Final = 0.25
KEPT_MAX_S: Final = 60.0
INTERVAL_BUSY_S: Final = 2.0
STALLED_WRITER_S: Final = 90.0
"""Above the longest stall of a writer between its claim and its fence, whose slot an old WAL file occupies."""
_GROWTH = 1.05
"""By what the time grows from one pass to the next.  It shrinks at once: a jump would let garbage pile up."""
_RATIO_RELAXED, _RATIO_TIGHT = 1.25, 2.0


def kept_s(stored_bytes: int, live_bytes: int) -> float:
    """Return how long an object is kept from the moment on in which nothing references it.

    Args:
        stored_bytes: all objects of the database.
        live_bytes: those that the newest manifest references.
    """
    excess = stored_bytes - _RATIO_RELAXED * live_bytes
    tolerated = (_RATIO_TIGHT - _RATIO_RELAXED) * live_bytes
    if excess <= 0:
        return KEPT_MAX_S
    return max(KEPT_MIN_S, KEPT_MAX_S * (1 - excess / tolerated)) if tolerated else KEPT_MIN_S


class GarbageRetention:
    """Remembers since when objects could be deleted.

    Args:
        clock: the clock.
        root: the path of the database.
        is_own_wal: whether a WAL file was written and flushed by the writer of this process.  No stalled writer can
            put into such a slot: those that claimed before have lower slots, those that claimed later have higher ones.

    Attributes:
        kept_s: how long objects are kept.
        interval_s: the time to the next pass while the database changes.
    """

    def __init__(self, clock: Clock, root: str, is_own_wal: Callable[[int], bool]) -> None:
        self.kept_s = KEPT_MAX_S
        self.interval_s = INTERVAL_BUSY_S
        self._clock = clock
        self._root = root
        self._is_own_wal = is_own_wal
        self._since_s: dict[Task, dict[str, float]] = defaultdict(dict)
        self._seen_s: dict[Task, dict[str, float]] = defaultdict(dict)
        self._dropped_s: dict[str, float] = {}

    def end_pass(self, tasks: Sequence[Task]) -> None:
        """Forget the objects of these tasks that are gone."""
        for task in tasks:
            self._since_s[task] = self._seen_s.pop(task, {})
        if Task.COMPACTED in tasks:
            # The next pass may be the first one that meets what was dropped during this one.
            self._since_s[Task.COMPACTED] = self._dropped_s | self._since_s[Task.COMPACTED]
            self._dropped_s = {}

    def dropped(self, ssts: Iterable[Ulid]) -> None:
        """Record that no manifest but those of checkpoints references these SSTs from now on."""
        self._dropped_s.update(dict.fromkeys([sst_key(self._root, sst) for sst in ssts], self._clock.monotonic_s()))

    def adapt(self, stored_bytes: int, live_bytes: int) -> None:
        """Choose the time for the next pass."""
        self.kept_s = min(kept_s(stored_bytes, live_bytes), self.kept_s * _GROWTH)
        self.interval_s = min(INTERVAL_BUSY_S, self.kept_s)

    async def filter(self, task: Task, keys: Sequence[str]) -> list[str]:
        """Return the objects that have been kept long enough: a ``GcFilter``."""
        now_s = self._clock.monotonic_s()
        since, seen = self._since_s[task] | self._dropped_s, self._seen_s[task]
        allowed = []
        for key in keys:
            since_s = seen[key] = since.get(key, now_s)
            if now_s - since_s >= self._needed_s(task, key):
                allowed.append(key)
        return allowed

    def _needed_s(self, task: Task, key: str) -> float:
        if task is Task.WAL:
            wal_id = parse_wal_key(self._root, key)
            return self.kept_s if wal_id is not None and self._is_own_wal(wal_id) else STALLED_WRITER_S
        return self.kept_s
