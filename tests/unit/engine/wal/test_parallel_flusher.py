"""The WAL flusher with several PUTs in flight: what may be in flight, and what it acknowledges in which order."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from shale.engine.wal.parallel_flusher import ParallelWalFlusher
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.landed_durability import LandedDurability
from shale.errors import FencedError, ShaleError, UnavailableError
from shale.protocol.wal_store import WalStore
from shale.types import ExclusiveModes, Manifest
from tests.unit.engine.writer_parts import Parts, make_flusher, make_parts

FIRST = 2
"""The first file of the writer; its fence is file 1."""


class GatedWal(WalStore):
    """A WAL whose puts wait until the test lets them end, one by one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gates: dict[int, anyio.Event] = {}
        self.failing: set[int] = set()
        self.begun = anyio.Event()

    async def put_or_raise_fenced(self, wal_id: int, data: Any, *, epoch: int | None = None) -> None:
        gate = self.gates.setdefault(wal_id, anyio.Event())
        self.begun.set()
        await gate.wait()
        if wal_id in self.failing:
            raise UnavailableError(f"file {wal_id}")
        await super().put_or_raise_fenced(wal_id, data, epoch=epoch)

    @property
    def waiting(self) -> list[int]:
        return [wal_id for wal_id, gate in self.gates.items() if not gate.is_set()]

    async def let_end(self, *wal_ids: int) -> None:
        for wal_id in wal_ids:
            self.gates[wal_id].set()
            await anyio.wait_all_tasks_blocked()


@dataclass
class Run:
    """A flusher at work."""

    parts: Parts
    wal: GatedWal
    flusher: ParallelWalFlusher
    told: list[ShaleError] = field(default_factory=list)
    ended_with: list[ShaleError] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def durability(self) -> DurabilityTracker:
        return self.parts.durability

    async def put(self, key: bytes = b"k") -> int:
        """Write a row and request its file."""
        handle = await self.parts.pipeline.put(key, b"v")
        self.flusher.request()
        await anyio.wait_all_tasks_blocked()
        return handle.seq

    def fail(self, error: ShaleError) -> None:
        self.told.append(error)
        self.durability.fail(error)

    async def work(self) -> None:
        try:
            await self.flusher.run(self.fail)
        except ShaleError as error:
            self.ended_with.append(error)
            self.ended.set()

    async def acknowledged(self, seq: int, into: dict[int, str]) -> None:
        try:
            await self.durability.wait_acknowledged(seq)
            into[seq] = "durable"
        except ShaleError:
            into[seq] = "unknown"


def running(
    scenario: Callable[[Run], Awaitable[None]], *, parallel: int = 2, ack: str = "contiguous"
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        kind = DurabilityTracker if ack == "contiguous" else LandedDurability
        manifest = Manifest(exclusive=ExclusiveModes(max_parallel_writes=parallel))
        parts = await make_parts(new=manifest, durability=kind(0, FIRST - 1), flush_interval_s=None)
        wal = GatedWal(parts.store, "db")
        flusher = make_flusher(ParallelWalFlusher, parts, wal)
        this = Run(parts, wal, flusher)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(this.work)
            with anyio.fail_after(60):
                await scenario(this)
            tasks.cancel_scope.cancel()

    return run


@pytest.mark.parametrize("parallel", [2, 4])
def test_no_more_puts_than_allowed_are_in_flight(parallel: int) -> None:
    async def scenario(run: Run) -> None:
        for _ in range(parallel + 3):
            await run.put()
        assert run.wal.waiting == list(range(FIRST, FIRST + parallel))
        assert run.flusher.puts_in_flight == parallel
        await run.wal.let_end(FIRST + 1)
        # The rows that waited for a free PUT share one file.
        assert run.wal.waiting == [FIRST, *range(FIRST + 2, FIRST + 1 + parallel)]
        await run.wal.let_end(*run.wal.waiting)
        assert run.durability.durable_seq == parallel + 3
        assert not run.wal.waiting
        assert run.flusher.puts_in_flight == 0

    anyio.run(running(scenario, parallel=parallel))


@pytest.mark.parametrize("ack", ["contiguous", "as_landed"])
def test_the_durable_frontier_waits_for_the_missing_file(ack: str) -> None:
    async def scenario(run: Run) -> None:
        first, second = await run.put(), await run.put()
        await run.wal.let_end(FIRST + 1)
        assert (run.durability.durable_wal_id, run.durability.durable_seq) == (FIRST - 1, 0)
        third = await run.put()
        await run.wal.let_end(FIRST)
        assert (run.durability.durable_wal_id, run.durability.durable_seq) == (FIRST + 1, second)
        await run.wal.let_end(FIRST + 2)
        assert (run.durability.durable_wal_id, run.durability.durable_seq) == (FIRST + 2, third)
        assert first < second < third

    anyio.run(running(scenario, ack=ack))


@pytest.mark.parametrize(("ack", "early"), [("contiguous", {}), ("as_landed", {2: "durable"})])
def test_who_is_told_before_the_older_file_is_written(ack: str, early: dict[int, str]) -> None:
    async def scenario(run: Run) -> None:
        told: dict[int, str] = {}
        async with anyio.create_task_group() as waiters:
            for _ in range(2):
                waiters.start_soon(run.acknowledged, await run.put(), told)
            await run.wal.let_end(FIRST + 1)
            assert told == early
            await run.wal.let_end(FIRST)
        assert told == {1: "durable", 2: "durable"}

    anyio.run(running(scenario, ack=ack))


@pytest.mark.parametrize("ack", ["contiguous", "as_landed"])
def test_all_rows_are_durable_only_with_the_older_file(ack: str) -> None:
    """A WAL flush, other than a single commit, means every row up to the newest."""

    async def scenario(run: Run) -> None:
        ended: list[int] = []

        async def flush(seq: int) -> None:
            await run.durability.wait_durable(seq)
            ended.append(seq)

        async with anyio.create_task_group() as waiters:
            for _ in range(2):
                waiters.start_soon(flush, await run.put())
            await run.wal.let_end(FIRST + 1)
            assert not ended
            await run.wal.let_end(FIRST)
        assert sorted(ended) == [1, 2]

    anyio.run(running(scenario, ack=ack))


def test_a_memtable_is_stamped_with_the_end_of_the_prefix() -> None:
    """A stamp that covers a later file would move the replay point past the missing one."""

    async def scenario(run: Run) -> None:
        await run.put()
        await run.put()
        await run.wal.let_end(FIRST + 1)
        run.parts.pipeline.freeze()
        assert run.parts.pipeline.buffers.frozen.tables[-1].replay_after_wal_id == FIRST - 1
        await run.wal.let_end(FIRST)
        await run.put()
        run.parts.pipeline.freeze()
        assert run.parts.pipeline.buffers.frozen.tables[-1].replay_after_wal_id == FIRST + 1

    anyio.run(running(scenario))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize(
    ("ack", "told"),
    [
        pytest.param("contiguous", {1: "unknown", 2: "unknown", 3: "unknown"}, id="contiguous"),
        pytest.param("as_landed", {1: "unknown", 2: "durable", 3: "durable"}, id="as landed"),
    ],
)
def test_after_a_conflict_no_put_begins_and_the_others_run_to_their_end(ack: str, told: dict[int, str]) -> None:
    """File 3 is written before the conflict of file 2, file 4 after it."""

    async def scenario(run: Run) -> None:
        found: dict[int, str] = {}
        await run.parts.store.put(run.wal.key(FIRST), b"")  # the fence of a newer writer
        async with anyio.create_task_group() as waiters:
            for _ in range(2):
                waiters.start_soon(run.acknowledged, await run.put(), found)
            await run.wal.let_end(FIRST + 1)
            waiters.start_soon(run.acknowledged, await run.put(), found)
            assert run.wal.waiting == [FIRST, FIRST + 2]
            await run.wal.let_end(FIRST)
            assert [type(error) for error in run.told] == [FencedError]
            assert not run.ended_with
            run.flusher.request()
            await anyio.wait_all_tasks_blocked()
            assert run.wal.waiting == [FIRST + 2]
            await run.wal.let_end(FIRST + 2)
        assert found == told
        await run.ended.wait()
        assert [type(error) for error in run.ended_with] == [FencedError]
        assert await run.wal.read(FIRST + 2)
        assert (run.durability.durable_seq, run.durability.durable_wal_id) == (0, FIRST - 1)

    anyio.run(running(scenario, parallel=2, ack=ack))


@pytest.mark.fault("F2.21")
def test_a_put_in_flight_that_fails_after_the_first_failure_is_not_acknowledged() -> None:
    async def scenario(run: Run) -> None:
        found: dict[int, str] = {}
        run.wal.failing |= {FIRST, FIRST + 1}
        async with anyio.create_task_group() as waiters:
            for _ in range(2):
                waiters.start_soon(run.acknowledged, await run.put(), found)
            await run.wal.let_end(FIRST + 1)
            await run.wal.let_end(FIRST)
        assert found == {1: "unknown", 2: "unknown"}
        await run.ended.wait()
        assert [str(error) for error in run.told] == [f"file {FIRST + 1}"]
        assert [str(error) for error in run.ended_with] == [f"file {FIRST + 1}"]

    anyio.run(running(scenario, ack="as_landed"))


def test_rows_count_as_buffered_until_no_file_before_them_is_missing() -> None:
    async def scenario(run: Run) -> None:
        buffer = run.parts.pipeline.buffers.wal
        assert buffer is not None
        await run.put()
        await run.put()
        both = buffer.size_bytes
        assert both > 0
        await run.wal.let_end(FIRST + 1)
        assert buffer.size_bytes == both
        await run.wal.let_end(FIRST)
        assert buffer.size_bytes == 0

    anyio.run(running(scenario))
