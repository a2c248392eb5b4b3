"""What a pass counts, tells and measures while it works, and which requests it makes at once."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from shale.errors import ShaleError, UnavailableError
from shale.gc.metrics import GcMetrics
from shale.gc.options import Task, TaskOptions
from shale.gc.passes import DELETE_BATCH, PROGRESS_S, STOP_S, GcProgress, Pass
from shale.gc.plan import Candidate, PlannedObject
from shale.telemetry.metrics import Metrics
from shale.testing.virtual_loop import VirtualLoop
from tests.clocks import ManualClock
from tests.unit.engine.write.timing import in_virtual_time
from tests.unit.protocol.conftest import run

PENDING = "slatedb_gc_pending_deletes"


class Deleting:
    """A pass, its clock and metrics, and the batches that it deletes."""

    def __init__(self, **fields: Any) -> None:
        self.metrics = Metrics()
        self.clock = ManualClock()
        self.batches: list[list[str]] = []
        self.pending: list[float] = []
        self.takes_s = 0.0
        self.broken: dict[str, ShaleError] = {}
        self.told: list[tuple[Task, int]] = []
        options: dict[str, Any] = {"dry_run": fields.pop("dry_run", False), "min_age_s": 0}
        defaults: dict[str, Any] = {"task": Task.COMPACTED, "now_ms": 1_000, "delete_concurrency": 1}
        self.work = Pass(
            options=TaskOptions(**options),
            instruments=GcMetrics(self.metrics),
            clock=self.clock,
            **defaults | fields,
        )

    async def delete_many(self, batch: Sequence[Candidate]) -> Mapping[str, ShaleError]:
        self.clock.sleep(self.takes_s)
        self.pending.append(self.value(PENDING))
        self.batches.append([each.key for each in batch])
        return {each.key: self.broken[each.key] for each in batch if each.key in self.broken}

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"db": "", **labels}) or 0

    async def execute(self, *sizes: int) -> GcProgress:
        await self.work.execute(chunks(*sizes), self.delete_many, why="old")
        return self.work.progress


async def chunks(*sizes: int) -> AsyncIterator[Sequence[Candidate]]:
    number = 0
    for size in sizes:
        yield [Candidate(number + each, f"k{number + each:05}", 10, 400) for each in range(size)]
        number += size


def test_a_wave_is_deleted_once_it_is_full() -> None:
    async def main() -> None:
        passing = Deleting()
        progress = await passing.execute(DELETE_BATCH - 1, 1, 1, DELETE_BATCH + 1, 2)
        assert [len(batch) for batch in passing.batches] == [DELETE_BATCH, DELETE_BATCH, 2, 2]
        assert passing.pending == [DELETE_BATCH, DELETE_BATCH + 2, DELETE_BATCH + 2, 2]
        assert passing.value(PENDING) == 0
        assert [key for batch in passing.batches for key in batch] == [
            f"k{number:05}" for number in range(2 * DELETE_BATCH + 4)
        ]
        assert (progress.planned, progress.planned_bytes) == (504, 5_040)
        assert (progress.deleted, progress.deleted_bytes, progress.failed) == (504, 5_040, 0)
        labels = {"resource": "compacted"}
        assert passing.value("slatedb_gc_deleted_objects_total", **labels) == 504
        assert passing.value("slatedb_gc_deleted_bytes_total", **labels) == 5_040
        assert passing.value("slatedb_gc_candidates", **labels) == 504

    run(main)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (8, 4)])
def test_as_many_requests_as_allowed_are_under_way(concurrency: int, most: int) -> None:
    async def main() -> None:
        passing = Deleting(delete_concurrency=concurrency)
        active, peak = 0, 0

        async def delete_many(batch: Sequence[Candidate]) -> Mapping[str, ShaleError]:
            nonlocal active, peak
            active += 1
            peak = max(peak, active)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            active -= 1
            return {}

        await passing.work.execute(chunks(4 * DELETE_BATCH), delete_many, why="old")
        assert peak == most
        assert passing.work.progress.deleted == 4 * DELETE_BATCH

    run(main)


@pytest.mark.parametrize(
    ("takes_s", "ends_s", "deleted"), [(1, 1, 1), (2 + STOP_S - 1, 2 + STOP_S - 1, 1), (1_000, 2 + STOP_S, 0)]
)
def test_a_deletion_under_way_may_end_within_a_limit_after_its_pass_is_stopped(
    takes_s: float, ends_s: float, deleted: int
) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        passing = Deleting()

        async def delete_many(_batch: Sequence[Candidate]) -> Mapping[str, ShaleError]:
            await anyio.sleep(takes_s)
            return {}

        with anyio.CancelScope() as stopping:
            loop.call_later(2, stopping.cancel)
            await passing.work.execute(chunks(1), delete_many, why="old")
        assert (loop.time(), passing.work.progress.deleted) == (ends_s, deleted)

    in_virtual_time(scenario)


def test_failures_are_counted_by_their_kind_and_the_first_is_kept() -> None:
    async def main() -> None:
        passing = Deleting()
        first, second = UnavailableError("first"), UnavailableError("second")
        passing.broken = {"k00001": first, f"k{DELETE_BATCH:05}": second}
        progress = await passing.execute(DELETE_BATCH + 1)
        assert (progress.deleted, progress.deleted_bytes, progress.failed) == (249, 2_490, 2)
        assert progress.problem is first
        assert passing.value("slatedb_gc_deleted_objects_total", resource="compacted") == 249
        assert passing.value("slatedb_gc_errors_total", resource="compacted", error_type="network") == 2

    run(main)


def test_a_listing_is_counted() -> None:
    passing = Deleting()
    for size in (2, 3):
        passing.work.count_listed([Candidate(0, "k", 10, 0)] * size)
    assert (passing.work.progress.listed, passing.work.progress.listed_bytes) == (5, 50)


def test_parts_of_a_pass_add_up() -> None:
    error, other = UnavailableError("first"), UnavailableError("second")
    whole = GcProgress(1, 2, 3, 4, 5, 6, 7, 8.0)
    whole.add(GcProgress(10, 20, 30, 40, 50, 60, 70, 80.0, error))
    assert whole == GcProgress(11, 22, 33, 44, 55, 66, 77, 8.0, error)
    whole.add(GcProgress(problem=other))
    assert whole.problem is error


def test_each_object_is_told_with_its_age_and_boundary() -> None:
    planned: list[PlannedObject] = []
    passing = Deleting(on_object=planned.append)
    passing.work.plan([Candidate(7, "k", 10, 400)], "old", 9)
    assert planned == [PlannedObject(Task.COMPACTED, "k", 10, 600, "old", 9)]
    assert (passing.work.progress.planned, passing.work.progress.planned_bytes) == (1, 10)
    assert passing.value("slatedb_gc_candidates", resource="compacted") == 1


def test_a_filter_is_asked_for_what_remains_only() -> None:
    async def main() -> None:
        asked: list[tuple[Task, list[str]]] = []

        async def all_of(task: Task, keys: Sequence[str]) -> Iterable[str]:
            asked.append((task, list(keys)))
            return keys

        passing = Deleting(filter=all_of, only=frozenset({"k00001", "k00009"}))
        await passing.execute(3, 2)
        assert passing.batches == [["k00001"]]
        assert asked == [(Task.COMPACTED, ["k00001"])]

    run(main)


def test_a_filter_that_adds_nothing_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def keep(_task: Task, keys: Sequence[str]) -> Iterable[str]:
        return keys[1:]

    async def main() -> None:
        await Deleting(filter=keep).execute(3)

    run(main)
    assert "gc.filter.unknown_keys" not in caplog.text


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [line for record in caplog.records if isinstance(line := record.msg, dict) and line["event"] == event]


@pytest.mark.parametrize(
    ("took_s", "is_told"),
    [([PROGRESS_S - 1, 1, 1], [0, 1, 0]), ([PROGRESS_S, 9, 1], [1, 0, 1]), ([9, 0, 0], [0, 0, 0])],
)
def test_progress_is_logged_at_intervals_and_told_after_each_chunk(
    took_s: list[float], is_told: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[Task, int]] = []

    async def main() -> None:
        passing = Deleting(on_progress=lambda task, progress: told.append((task, progress.planned)))

        async def slow() -> AsyncIterator[Sequence[Candidate]]:
            for number, seconds in enumerate(took_s):
                passing.clock.sleep(seconds)
                yield [Candidate(number, f"k{number}", 10, 400)]

        passing.clock.sleep(1000)
        await passing.work.execute(slow(), passing.delete_many, why="old")

    with caplog.at_level(logging.INFO, "shale"):
        run(main)
    assert told == [(Task.COMPACTED, 1), (Task.COMPACTED, 2), (Task.COMPACTED, 3)]
    assert [line["planned"] for line in lines(caplog, "gc.progress")] == [
        number + 1 for number, count in enumerate(is_told) if count
    ]


@pytest.mark.parametrize(
    ("dry_run", "sizes", "event"),
    [(False, [2], "gc.delete"), (True, [2], "gc.plan"), (False, [], None), (True, [], None)],
)
def test_the_end_of_a_pass_is_told_if_there_was_something_to_delete(
    dry_run: bool, sizes: list[int], event: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        passing = Deleting(dry_run=dry_run)
        GcMetrics(passing.metrics).planned(Task.COMPACTED, 9)  # by the pass before
        await passing.execute(*sizes)
        assert passing.value("slatedb_gc_candidates", resource="compacted") == sum(sizes)

    with caplog.at_level(logging.INFO, "shale"):
        run(main)
    told = [*lines(caplog, "gc.delete"), *lines(caplog, "gc.plan")]
    assert [(line["event"], line["count"], line["bytes"]) for line in told] == (
        [] if event is None else [(event, 2, 20)]
    )


def test_the_boundary_of_a_dry_run_is_not_advanced() -> None:
    async def main() -> None:
        advanced: list[int] = []

        async def advance(boundary: int) -> None:
            advanced.append(boundary)

        for dry_run in (True, False):
            passing = Deleting(dry_run=dry_run)
            await passing.work.execute(chunks(1), passing.delete_many, why="old", boundary=0, advance=advance)
            assert advanced == ([] if dry_run else [0])

    run(main)
