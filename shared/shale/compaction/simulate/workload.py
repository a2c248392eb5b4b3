"""The workload of a simulation: generated from parameters, or recorded.

A simulation has up to some hundred thousand rows.  Each represents ``scale`` real ones, so that a day of gigabytes
takes seconds.  The share of rows that meet again in a merge is that of the real workload; it determines the result.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shale.compaction.policies.option_checks import positive_problems, refuse
from shale.compaction.simulate.rows import NEVER, RowSet, newest_of_each_key
from shale.core.lazy_dataclass import dataclass
from shale.types import Manifest, Sst, Ulid

ROW_OVERHEAD_BYTES = 20
"""Overhead of a row in an SST: lengths, sequence number, flags, offset, share of the index."""

_MIB = 1024 * 1024

_DRAWS_MAX = 8
"""How often missing keys of a recorded flush are drawn; there may be fewer distinct keys than recorded."""


class Keys(StrEnum):
    """Distribution of overwritten keys: uniform, few keys often, or one after the other."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    SEQUENTIAL = "sequential"


class Flush(NamedTuple):
    """The rows of one L0, and when its flush is due, in seconds since the start."""

    due_s: float
    rows: RowSet


class RecordedFlush(NamedTuple):
    """A recorded L0: seconds since the first one, size in bytes, and number of keys, if known."""

    at_s: float
    bytes: int
    distinct: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Parameters of a workload.

    Args:
        rate_bytes_s: bytes of rows that clients write per second.
        duration_s: duration of the workload.
        l0_bytes: bytes of rows that one L0 takes, as ``l0_sst_size_bytes``.
        key_bytes, value_bytes: sizes of one row.
        initial_keys: keys in the database at the start, in one run.
        keys: distribution of the keys of overwrites and deletions.
        overwrite_share, delete_share: shares of all operations, 0 to 1; all others write new keys.
        ttl_s: lifetime of each row; ``None``: no expiry.
        recorded: flushes to use instead of ``rate_bytes_s``, ``duration_s`` and ``l0_bytes``.
        seed: seed of the random numbers; the same seed gives the same workload.
        rows_max: maximum of simulated rows; more are more exact and slower.

    Raises:
        InvalidRequestError: names everything that is out of range.
    """

    rate_bytes_s: float = _MIB
    duration_s: float = 86400.0
    l0_bytes: int = 64 * _MIB
    key_bytes: int = 16
    value_bytes: int = 100
    initial_keys: int = 0
    keys: Keys = Keys.UNIFORM
    overwrite_share: float = 0.5
    delete_share: float = 0.0
    ttl_s: float | None = None
    recorded: tuple[RecordedFlush, ...] | None = None
    seed: int = 0
    rows_max: int = 200_000

    def __post_init__(self) -> None:
        refuse(*(positive_problems(name, value) for name, value in self._positive()), self._share_problems())
        refuse(self._size_problems())

    def _positive(self) -> Iterator[tuple[str, float | None]]:
        yield from (("rate", self.rate_bytes_s), ("duration", self.duration_s), ("l0_bytes", self.l0_bytes))
        yield from (("key_bytes", self.key_bytes), ("ttl", self.ttl_s), ("rows_max", self.rows_max))

    def _share_problems(self) -> Iterator[str]:
        for name, share in (("overwrite_share", self.overwrite_share), ("delete_share", self.delete_share)):
            if not 0 <= share <= 1:
                yield f"{name} must lie between 0 and 1, not {share:g}"
        if self.overwrite_share + self.delete_share > 1:
            yield "overwrite_share and delete_share are more than 1 together"
        if self.value_bytes < 0 or self.initial_keys < 0:
            yield "value_bytes and initial_keys must not be negative"

    def _size_problems(self) -> Iterator[str]:
        if self.recorded is None and self.l0_bytes < self.row_bytes:
            yield f"l0_bytes {self.l0_bytes} is less than one row of {self.row_bytes} bytes"
        if self.recorded is not None and (len(self.recorded) < 2 or self.end_s <= 0):
            yield f"a recorded load needs two flushes at different times, and {len(self.recorded)} were recorded"
        if any(each.bytes <= 0 for each in self.recorded or ()):
            yield "a recorded flush must have bytes"
        if self.recorded is None and not self.due:
            yield f"not one L0 of {self.l0_bytes} bytes is full after {self.duration_s:g} s"

    @property
    def row_bytes(self) -> float:
        """Size of one real row in an SST; of a recorded workload, the mean, if the number of rows is known."""
        counted = [(each.bytes, each.distinct) for each in self.recorded or () if each.distinct]
        if self.recorded is not None and len(counted) == len(self.recorded):
            return sum(size for size, _ in counted) / sum(count or 0 for _, count in counted)
        return self.key_bytes + self.value_bytes + ROW_OVERHEAD_BYTES

    @property
    def tombstone_bytes(self) -> float:
        """Size of one real tombstone in an SST."""
        return min(self.row_bytes, self.key_bytes + ROW_OVERHEAD_BYTES)

    @property
    def end_s(self) -> float:
        """End of the workload in seconds since the start."""
        return self.duration_s if self.recorded is None else self.recorded[-1].at_s

    @property
    def due(self) -> Sequence[tuple[float, int]]:
        """Time and written bytes of each flush."""
        if self.recorded is not None:
            return [(each.at_s, each.bytes) for each in self.recorded]
        interval_s = self.l0_bytes / self.rate_bytes_s
        return [(interval_s * (n + 1), self.l0_bytes) for n in range(int(self.duration_s / interval_s))]

    @property
    def scale(self) -> float:
        """Number of real rows that a simulated one represents, at least 1."""
        real = sum(size for _, size in self.due) / self.row_bytes + self.initial_keys
        return max(1.0, real / self.rows_max)


class KeyChooser:
    """Draws keys, which are numbered in the order of their first write."""

    def __init__(self, load: Workload) -> None:
        self._load = load
        self._rng = np.random.default_rng(load.seed)
        self._next = 0
        self.count = round(load.initial_keys / load.scale)

    def flushes(self) -> Iterator[Flush]:
        """Yield all flushes of the workload."""
        load = self._load
        for due_s, size in load.due:
            wanted = max(1, round(size / load.row_bytes / load.scale))
            yield Flush(
                due_s, self._recorded(wanted, due_s) if load.recorded is not None else self._rows(wanted, due_s)
            )

    def initial(self) -> RowSet:
        """Return the initial keys, which do not expire."""
        return _row_set(np.arange(self.count), NEVER, np.zeros(self.count, np.bool_))

    def _recorded(self, wanted: int, due_s: float) -> RowSet:
        """Draw about ``wanted`` distinct keys: recorded sizes are those after deduplication."""
        rows = self._rows(wanted, due_s)
        for _ in range(_DRAWS_MAX):
            if rows.count >= wanted:
                break
            more = self._rows(wanted - rows.count, due_s)
            rows = newest_of_each_key(
                RowSet(
                    np.concatenate([rows.keys, more.keys]),
                    np.concatenate([rows.expires_s, more.expires_s]),
                    np.concatenate([rows.deleted, more.deleted]),
                )
            )
        return rows

    def _rows(self, count: int, due_s: float) -> RowSet:
        load = self._load
        dice = self._rng.random(count)
        deletes = dice < load.delete_share
        again = dice < load.delete_share + load.overwrite_share
        if self.count == 0:
            again[0] = deletes[0] = False
        # The number of existing keys before each row.
        existing = self.count + np.cumsum(~again) - ~again
        keys = np.where(again, self._existing(existing, again), existing)
        self.count += int(np.count_nonzero(~again))
        expires_s = NEVER if load.ttl_s is None else due_s + load.ttl_s
        return newest_of_each_key(_row_set(keys, expires_s, deletes))

    def _existing(self, existing: NDArray[np.int64], again: NDArray[np.bool_]) -> NDArray[np.int64]:
        limits = np.maximum(existing, 1)
        match self._load.keys:
            case Keys.UNIFORM:
                return (self._rng.random(len(limits)) * limits).astype(np.int64)
            case Keys.ZIPF:  # Exponent 1: ranks whose logarithms are uniform.
                return (np.exp(self._rng.random(len(limits)) * np.log(limits))).astype(np.int64) % limits
            case Keys.SEQUENTIAL:
                steps = self._next + np.cumsum(again) - again
                self._next += int(np.count_nonzero(again))
                chosen: NDArray[np.int64] = steps % limits
                return chosen


def _row_set(keys: NDArray[np.int64], expires_s: float, deleted: NDArray[np.bool_]) -> RowSet:
    return RowSet(keys.astype(np.int64), np.full(len(keys), expires_s), deleted)


def recorded_flushes(flushes: Sequence[RecordedFlush]) -> tuple[RecordedFlush, ...]:
    """Sort by time and shift the first one to 0."""
    ordered = sorted(flushes, key=lambda each: each.at_s)
    start_s = ordered[0].at_s if ordered else math.nan
    return tuple(each._replace(at_s=each.at_s - start_s) for each in ordered)


@dataclass(frozen=True, slots=True)
class FlushHistory:
    """Flushes in order of time, the first at 0, and the size of the runs before them."""

    flushes: tuple[RecordedFlush, ...]
    initial_bytes: int


def history_of(manifests: Sequence[Manifest]) -> FlushHistory:
    """Return the flushes in versions of the manifest, oldest first.

    Each flush writes a version, so between the oldest and the newest version none is missing.  The ULID of an L0 has
    the time of its flush.
    """
    flushed: dict[Ulid, Sst] = {sst.id: sst for sst in _l0_ssts(manifests)}
    flushes = [RecordedFlush(sst.id.ms / 1000, sst.estimated_size_bytes) for sst in flushed.values()]
    first = manifests[0] if manifests else Manifest()
    runs = (run.estimated_size_bytes for _, tree in first.trees() for run in tree.compacted)
    return FlushHistory(recorded_flushes(flushes), sum(runs))


def _l0_ssts(manifests: Iterable[Manifest]) -> Iterable[Sst]:
    return (view.sst for manifest in manifests for _, tree in manifest.trees() for view in tree.l0)
