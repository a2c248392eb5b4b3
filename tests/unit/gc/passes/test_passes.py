"""One pass executes a plan: batches, filters, dry runs, the boundary, and failed deletions."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest

from shale.errors import ProtocolPanic, ShaleError, UnavailableError
from shale.gc.metrics import GcMetrics
from shale.gc.options import Task, TaskOptions
from shale.gc.passes import DELETE_BATCH, Pass
from shale.gc.plan import Candidate, PlannedObject
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Deletions:
    """Records deletions; fails the keys in ``broken``."""

    def __init__(self, broken: Iterable[str] = (), error: ShaleError | None = None) -> None:
        self.batches: list[list[str]] = []
        self.log: list[str] = []
        self._broken = frozenset(broken)
        self._error = error

    async def delete_many(self, batch: Sequence[Candidate]) -> Mapping[str, ShaleError]:
        if self._error is not None:
            raise self._error
        self.log.append("delete")
        self.batches.append([each.key for each in batch])
        return {each.key: UnavailableError("broken") for each in batch if each.key in self._broken}

    async def advance(self, boundary: int) -> None:
        self.log.append(f"boundary {boundary}")

    @property
    def keys(self) -> list[str]:
        return sorted(key for batch in self.batches for key in batch)


def a_pass(**fields: Any) -> Pass:
    defaults: dict[str, Any] = {
        "task": Task.COMPACTED,
        "now_ms": 1_000,
        "options": TaskOptions(min_age_s=0),
        "instruments": GcMetrics(Metrics()),
        "delete_concurrency": 2,
        "clock": ManualClock(),
    }
    return Pass(**defaults | fields)


async def chunks(*sizes: int) -> AsyncIterator[Sequence[Candidate]]:
    number = 0
    for size in sizes:
        yield [Candidate(number + each, f"k{number + each:05}", 10, 400) for each in range(size)]
        number += size


async def test_all_objects_of_all_chunks_are_deleted_in_bounded_batches() -> None:
    this, deletions = a_pass(), Deletions()
    await this.execute(chunks(300, 5, 700), deletions.delete_many, why="unused")
    assert len(deletions.keys) == 1_005
    assert max(map(len, deletions.batches)) <= DELETE_BATCH
    assert (this.progress.planned, this.progress.deleted, this.progress.deleted_bytes) == (1_005, 1_005, 10_050)


async def test_the_boundary_is_advanced_before_the_first_deletion() -> None:
    deletions = Deletions()
    await a_pass().execute(chunks(1), deletions.delete_many, why="old", boundary=7, advance=deletions.advance)
    assert deletions.log == ["boundary 7", "delete"]


async def test_a_dry_run_plans_and_writes_nothing() -> None:
    planned: list[PlannedObject] = []
    this, deletions = a_pass(options=TaskOptions(min_age_s=0, dry_run=True), on_object=planned.append), Deletions()
    await this.execute(chunks(2), deletions.delete_many, why="old", boundary=7, advance=deletions.advance)
    assert deletions.log == []
    assert [(each.key, each.age_ms, each.reason) for each in planned] == [
        ("k00000", 600, "old, 600 ms old, boundary 7"),
        ("k00001", 600, "old, 600 ms old, boundary 7"),
    ]
    assert this.progress.deleted == 0


async def test_only_limits_the_keys() -> None:
    deletions = Deletions()
    await a_pass(only=frozenset({"k00001", "other"})).execute(chunks(3), deletions.delete_many, why="old")
    assert deletions.keys == ["k00001"]


async def test_a_filter_excludes_keys_and_cannot_add_any(caplog: pytest.LogCaptureFixture) -> None:
    async def keep_first(_task: Task, keys: Sequence[str]) -> Iterable[str]:
        return [*keys[1:], "unknown"]

    deletions = Deletions()
    with caplog.at_level(logging.WARNING):
        await a_pass(filter=keep_first).execute(chunks(3), deletions.delete_many, why="old")
    assert deletions.keys == ["k00001", "k00002"]
    assert "gc.filter.unknown_keys" in caplog.text


async def test_failed_objects_are_counted_and_the_others_deleted() -> None:
    this, deletions = a_pass(), Deletions(broken=["k00001"])
    await this.execute(chunks(3), deletions.delete_many, why="old")
    assert (this.progress.deleted, this.progress.deleted_bytes, this.progress.failed) == (2, 20, 1)


async def test_an_error_of_a_request_counts_for_its_whole_batch() -> None:
    this = a_pass()
    await this.execute(chunks(3), Deletions(error=UnavailableError("away")).delete_many, why="old")
    assert (this.progress.deleted, this.progress.failed) == (0, 3)


async def test_a_panic_ends_the_pass() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await a_pass().execute(chunks(3), Deletions(error=ProtocolPanic("stop")).delete_many, why="old")
    assert caught.value.subgroup(ProtocolPanic) is not None
