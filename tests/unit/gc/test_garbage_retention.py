"""How long a writer's collector keeps objects."""

import anyio
import pytest

from shale.format.names import sst_key, wal_key
from shale.gc.options import Task
from shale.types import Ulid
from shale_gc.garbage_retention import (
    INTERVAL_BUSY_S,
    KEPT_MAX_S,
    KEPT_MIN_S,
    STALLED_WRITER_S,
    GarbageRetention,
    kept_s,
)

MB = 1_000_000
SST = sst_key("db", Ulid(1))
MANIFEST = "db/manifest/00000000000000000001.manifest"


class SetClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def monotonic_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)


def no_wal(_wal_id: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("stored", "live", "kept"),
    [
        (10 * MB, 10 * MB, KEPT_MAX_S),
        (12 * MB, 10 * MB, KEPT_MAX_S),
        (20 * MB, 10 * MB, KEPT_MIN_S),
        (90 * MB, 10 * MB, KEPT_MIN_S),
        (1 * MB, 0, KEPT_MIN_S),
        (0, 0, KEPT_MAX_S),
    ],
)
def test_a_directory_above_its_live_data_shortens_the_time(stored: int, live: int, kept: float) -> None:
    assert kept_s(stored, live) == kept


def test_between_the_bounds_more_garbage_is_less_time() -> None:
    times = [kept_s(stored * MB, 100 * MB) for stored in range(125, 201, 5)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) > 10


def deleted(retention: GarbageRetention, task: Task, keys: list[str]) -> list[str]:
    return anyio.run(retention.filter, task, keys)


def test_an_object_is_kept_from_the_moment_in_which_it_is_first_unreferenced() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", no_wal)
    assert deleted(retention, Task.COMPACTED, [SST]) == []
    retention.end_pass([Task.COMPACTED])
    clock.time_s += KEPT_MAX_S - 1
    assert deleted(retention, Task.COMPACTED, [SST]) == []
    retention.end_pass([Task.COMPACTED])
    clock.time_s += 1
    assert deleted(retention, Task.COMPACTED, [SST]) == [SST]


def test_an_object_that_is_referenced_again_counts_from_anew() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", no_wal)
    deleted(retention, Task.COMPACTED, [SST])
    retention.end_pass([Task.COMPACTED])
    clock.time_s += KEPT_MAX_S
    retention.end_pass([Task.COMPACTED])  # a pass that did not meet it
    assert deleted(retention, Task.COMPACTED, [SST]) == []


def test_a_pass_of_one_task_forgets_nothing_of_another() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", no_wal)
    deleted(retention, Task.MANIFEST, [MANIFEST])
    retention.end_pass([Task.MANIFEST, Task.COMPACTIONS])
    for _ in range(3):
        deleted(retention, Task.COMPACTED, [])
        retention.end_pass([Task.COMPACTED, Task.WAL])
    clock.time_s += KEPT_MAX_S
    assert deleted(retention, Task.MANIFEST, [MANIFEST]) == [MANIFEST]


def test_the_time_of_a_dropped_object_begins_before_a_pass_meets_it() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", no_wal)
    retention.adapt(90 * MB, 10 * MB)
    retention.dropped([Ulid(1)])
    clock.time_s += KEPT_MIN_S
    assert deleted(retention, Task.COMPACTED, [SST]) == [SST]


def test_an_object_that_is_dropped_amid_a_pass_is_remembered_for_the_next_one() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", no_wal)
    retention.adapt(90 * MB, 10 * MB)
    deleted(retention, Task.COMPACTED, [])
    retention.dropped([Ulid(1)])
    retention.end_pass([Task.COMPACTED, Task.WAL])
    clock.time_s += KEPT_MIN_S
    assert deleted(retention, Task.COMPACTED, [SST]) == [SST]
    retention.end_pass([Task.COMPACTED, Task.WAL])
    retention.end_pass([Task.COMPACTED, Task.WAL])
    assert deleted(retention, Task.COMPACTED, [SST]) == [], "it was referenced again in between"


def test_wal_files_of_older_writers_outlive_their_stalls() -> None:
    clock = SetClock()
    retention = GarbageRetention(clock, "db", lambda wal_id: wal_id > 7)
    old, own = wal_key("db", 7), wal_key("db", 8)
    deleted(retention, Task.WAL, [old, own])
    retention.end_pass([Task.WAL])
    retention.adapt(90 * MB, 10 * MB)
    clock.time_s += KEPT_MIN_S
    assert deleted(retention, Task.WAL, [old, own]) == [own]
    retention.end_pass([Task.WAL])
    clock.time_s += STALLED_WRITER_S - KEPT_MIN_S
    assert deleted(retention, Task.WAL, [old]) == [old]


def test_the_time_shrinks_at_once_and_grows_slowly() -> None:
    retention = GarbageRetention(SetClock(), "db", no_wal)
    retention.adapt(90 * MB, 10 * MB)
    assert retention.kept_s == KEPT_MIN_S
    retention.adapt(10 * MB, 10 * MB)
    assert KEPT_MIN_S < retention.kept_s < 2 * KEPT_MIN_S


def test_passes_follow_each_other_more_quickly_in_a_directory_that_grows() -> None:
    retention = GarbageRetention(SetClock(), "db", no_wal)
    retention.adapt(10 * MB, 10 * MB)
    assert retention.interval_s == INTERVAL_BUSY_S
    retention.adapt(90 * MB, 10 * MB)
    assert retention.interval_s == KEPT_MIN_S
