"""Readers under faults.

The writer numbers its rows, so the rows that a reader returns tell the last write it has seen; anything missing below
that is a gap.

Source: docs/reference/protocol.md 16.3.
"""

from typing import Any

import anyio
import pytest

from shale.engine.db_reader import DbReader
from shale.engine.write.batch import WriteBatch
from shale.errors import CorruptionError, ShaleError
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.faults import Fault
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Checkpoint, Manifest
from tests.simulation.background_actors import eager_collector, l0_promoter
from tests.simulation.compactor import lsm
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.gc.harness import collector
from tests.simulation.reader.reader_processes import (
    COMPACTION,
    EAGER,
    LIFETIME_S,
    POLL_S,
    ExpectedState,
    last_reader,
    manifests_of,
    open_reader,
    until_created,
    until_it_works_again,
    writer,
)
from tests.simulation.writer.writers import open_db

READ_S = 200.0
"""The writers of the rows that use it are done within 180 seconds."""


async def bulk_writer(process: SimProcess, expected_state: ExpectedState, *, rounds: int) -> None:
    """Write batches of 100 rows, together more than a scan merges at once; each becomes an L0."""
    rng = process.rng
    async with open_db(process) as db:
        for number in range(rounds):
            batch = WriteBatch()
            rows = [(b"key-%03d" % rng.randrange(400), b"%d/" % number + bytes(500)) for _ in range(100)]
            for key, value in rows:
                batch.put(key, value)
            seq = (await db.write(batch)).seq
            expected_state.writes += [(seq, key, value) for key, value in rows]
            await db.flush("memtable")
            await anyio.sleep(rng.uniform(0, 10))


async def reader(
    process: SimProcess,
    expected_state: ExpectedState,
    *,
    seconds: float = 300.0,
    row_pause_s: float = 0.0,
    **options: Any,
) -> DbReader:
    """Scan and look up repeatedly; every result must be correct, and none older than an earlier one."""
    await until_created(process)
    seen = 0
    async with open_reader(process, **options) as db:
        started = process.clock.monotonic_s()
        while process.clock.monotonic_s() < started + seconds:
            rows = []
            async for row in db.scan():
                rows.append(row)
                await anyio.sleep(row_pause_s)
            seen = expected_state.check(rows, at_least=seen)
            for row in rows[:3]:
                again = await db.get_row(row.key)
                assert again is not None
                assert again.seq >= row.seq
                assert (again.seq, again.key, again.value) in expected_state.writes
            await anyio.sleep(process.rng.uniform(0, POLL_S))
    return db


async def expirer(process: SimProcess, *, rounds: int = 80) -> None:
    """Remove expired checkpoints, which is the first step of every pass of a collector."""
    await until_created(process)
    stored = await manifests_of(process).load()
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, 10))
        await stored.refresh()
        await remove_expired_checkpoints(stored, process.env.clock.now_ms())


def watch(sim: Simulation) -> None:
    sim.watch(DatabaseInvariants("db"))


def reader_checkpoints(sim: Simulation) -> list[Checkpoint]:
    return [each for each in latest(sim).checkpoints if each.writer_epoch is None]


def latest(sim: Simulation) -> Manifest:
    (rules,) = sim.invariants
    assert isinstance(rules, DatabaseInvariants)
    return rules.manifests.latest


def check_final(sim: Simulation, expected_state: ExpectedState) -> None:
    """Check that after the faults a new reader sees every durable row."""
    sim.heal()
    sim.run(hours=3)
    if not sim.objects("db/manifest/"):
        return  # the writer died before there was a database
    process = sim.start(last_reader, "last", role="reader")
    sim.run(hours=1)
    assert process.error is None, process.error
    assert expected_state.check(process.result) >= expected_state.durable_seq


@pytest.mark.fault("F3.1")
@simulated
def test_the_checkpoint_of_a_killed_reader_expires(seed: int) -> None:
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state)
        killed = sim.start(reader, expected_state=expected_state)
        sim.at(sim.rng.uniform(20, 120), killed.kill)
        sim.run(seconds=130)
        assert killed.is_killed
        sim.start(expirer, role="gc")
        sim.run(hours=1)
        assert not latest(sim).checkpoints
        check_final(sim, expected_state)


@pytest.mark.fault("F3.2")
@simulated_slowly
@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
def test_a_reader_recovers_from_a_partition_longer_than_its_checkpoint(seed: int, collects: bool) -> None:
    """The reader sleeps through its lease; its results are correct or errors, and it establishes itself again."""
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state, rounds=100)
        sim.start(l0_promoter, role="compactor", rounds=400, pause_s=3.0)
        sleeper = sim.start(until_it_works_again, role="reader", expected_state=expected_state)
        sim.at(sim.rng.uniform(20, 60), lambda: sleeper.freeze(200))
        if collects:
            sim.start(expirer, role="gc")
            sim.start(eager_collector, role="gc", rounds=200, pause_s=5.0)
        sim.run(hours=1)
        assert sleeper.error is None, sleeper.error
        assert sleeper.result > 0
        check_final(sim, expected_state)


@pytest.mark.fault("F3.3")
@simulated
def test_a_reader_pins_the_manifest_that_its_checkpoint_was_written_into(seed: int) -> None:
    """Others write between the read of the manifest and the commit: the pinned manifest is the written one."""
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state)
        sim.start(l0_promoter, role="compactor", rounds=60, pause_s=1.0)
        late = sim.start(pinned_is_written, expected_state=expected_state, role="reader")
        for skip in range(3):
            late.freeze_before("put", "/manifest/", sim.rng.uniform(1, 20), skip=skip)
        sim.run(hours=1)
        assert late.error is None, late.error
        check_final(sim, expected_state)


async def pinned_is_written(process: SimProcess, expected_state: ExpectedState) -> None:
    await until_created(process)
    manifests = manifests_of(process)
    seen = 0
    async with open_reader(process) as db:
        for _ in range(12):
            seen = expected_state.check([row async for row in db.scan()], at_least=seen)
            checkpoint_id = db.checkpoint_id
            assert checkpoint_id is not None
            written = await manifests.read(db.manifest_id)
            assert written is not None
            entry = written.checkpoint(checkpoint_id)
            assert entry is not None
            assert entry.manifest_id == db.manifest_id
            assert db.manifest.tree == written.tree
            await anyio.sleep(POLL_S / 2)


@pytest.mark.fault("F3.4")
@simulated_slowly
def test_a_replay_during_wal_gc_shows_no_gaps(seed: int) -> None:
    """A reader that only follows is not protected: its rows still have no gaps."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(latency_s=1.0)) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state, pause_s=1.0)
        sim.start(eager_collector, role="gc", rounds=50, pause_s=1.0)
        brief = {"expected_state": expected_state, "seconds": READ_S}
        follower = sim.start(reader, **brief, follow_latest=True, manifest_poll_interval=2.0)
        managed = sim.start(reader, "managed", role="reader", **brief, max_memtable_bytes=300)
        sim.run(hours=1)
        assert managed.error is None, managed.error
        assert follower.error is None, follower.error
        check_final(sim, expected_state)


@pytest.mark.slow
@pytest.mark.fault("F3.5")
@simulated_slowly
def test_a_scan_longer_than_its_checkpoint_completes(seed: int) -> None:
    """A scan over many replacements and longer than a lease completes beside a collector without a minimum age."""
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(bulk_writer, role="writer", expected_state=expected_state, rounds=50)
        sim.run(seconds=60)
        sim.start(lsm.compactor, options=COMPACTION)
        sim.start(collector, role="gc", options=EAGER)
        scanning = sim.start(slow_scan, expected_state=expected_state, role="reader")
        sim.run(hours=1, until=lambda: not scanning.is_running)
        assert scanning.error is None, scanning.error
        replaced, deleted = scanning.result
        assert replaced >= 3
        assert deleted, "the collector had nothing to do"


async def slow_scan(process: SimProcess, expected_state: ExpectedState) -> tuple[int, int]:
    """Return how often the checkpoint of the scan was replaced, and how many SSTs were deleted meanwhile."""
    history = process.sim.history
    checkpoints = set()
    async with open_reader(process, read_ahead_bytes=8192, block_cache_bytes=0) as db:
        deleted = len([one for one in history.of("/compacted/") if one.op == "delete"])
        rows = []
        async for row in db.scan():
            rows.append(row)
            checkpoints.add(db.checkpoint_id)
            await anyio.sleep(5 * LIFETIME_S / 300)
        expected_state.check(rows)
        assert db.problem is None
    return len(checkpoints) - 1, len([one for one in history.of("/compacted/") if one.op == "delete"]) - deleted


@pytest.mark.fault("F3.6")
@simulated
def test_a_pinned_reader_without_its_checkpoint_is_never_wrong(seed: int) -> None:
    """Later reads may fail, but return no wrong rows."""
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state)
        sim.run(seconds=40)
        owner = sim.start(reader, "owner", role="reader", expected_state=expected_state, seconds=60)
        sim.run(seconds=15)
        *_, checkpoint = latest(sim).checkpoints  # two of them while the owner moves on to a newer state
        pinned = sim.start(pinned_reader, role="reader", expected_state=expected_state, checkpoint=checkpoint.id)
        sim.start(lsm.compactor)
        sim.start(collector, role="gc", options=EAGER)
        sim.run(minutes=10, until=lambda: not pinned.is_running)
        assert owner.error is None
        assert pinned.error is None, pinned.error
        assert pinned.result >= 1


async def pinned_reader(process: SimProcess, expected_state: ExpectedState, checkpoint: Any) -> int:
    answers = []
    async with open_reader(process, checkpoint=checkpoint, block_cache_bytes=0) as db:
        for _ in range(30):
            try:
                answers.append(expected_state.check([row async for row in db.scan()]))
            except CorruptionError as error:
                assert "gone" in error.message  # noqa: PT017 - any other damage would be a wrong answer
            await anyio.sleep(10)
    assert len(set(answers)) == 1, "a pinned reader never moves"
    return len(answers)


@pytest.mark.fault("F3.7")
@simulated_slowly
def test_a_conservative_replay_returns_no_row_twice(seed: int) -> None:
    """The WAL files after ``replay_after_wal_id`` overlap with L0, and tables are kept over flushes."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(latency_s=0.5)) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state, pause_s=0.5, rounds=120)
        brief = {"expected_state": expected_state, "seconds": READ_S}
        readers = [
            sim.start(reader, f"r{size}", role="reader", **brief, max_memtable_bytes=size, manifest_poll_interval=1.0)
            for size in (1, 500, 1 << 20)
        ]
        sim.run(hours=1)
        assert [one.error for one in readers] == [None] * 3
        check_final(sim, expected_state)


@pytest.mark.fault("F3.8")
@simulated
@pytest.mark.parametrize("attributes", [True, False], ids=["put ids", "plain"])
def test_a_lost_response_to_a_checkpoint_leaves_one_entry(seed: int, attributes: bool) -> None:
    """Exactly one entry belongs to the reader."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(attributes=attributes)) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state)
        sim.run(seconds=30)
        unlucky = sim.start(idle_reader, role="reader", expected_state=expected_state)
        for skip in range(4):
            unlucky.fail("put", "/manifest/", (Fault.AFTER, Fault.LATE)[sim.rng.randrange(2)], skip=2 * skip)
        sim.run(seconds=60)
        assert len(reader_checkpoints(sim)) == 1
        sim.run(hours=1)
        assert unlucky.error is None, unlucky.error
        assert not latest(sim).checkpoints
        check_final(sim, expected_state)


async def idle_reader(process: SimProcess, expected_state: ExpectedState) -> None:
    """No read uses old states, so there is one checkpoint at a time."""
    async with open_reader(process) as db:
        await anyio.sleep(200)
        expected_state.check([row async for row in db.scan()])


@pytest.mark.fault("F3.9")
@simulated
def test_closing_during_a_poll_removes_the_checkpoint(seed: int) -> None:
    """The checkpoint is removed, also one whose commit the close interrupted."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(latency_s=0.3)) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state, rounds=80, pause_s=2.0)
        sim.run(seconds=20)
        closing = [
            sim.start(
                reader, f"r{number}", role="reader", expected_state=expected_state, seconds=sim.rng.uniform(0, 60)
            )
            for number in range(4)
        ]
        sim.run(hours=1)
        assert [one.error for one in closing] == [None] * 4
        assert not latest(sim).checkpoints
        check_final(sim, expected_state)


@simulated
def test_readers_in_a_swarm_of_faults(seed: int) -> None:
    """No result is wrong; in the end every durable row is visible."""
    expected_state = ExpectedState()
    with Simulation(seed, swarm=True) as sim:
        watch(sim)
        sim.start(writer, expected_state=expected_state)
        sim.start(l0_promoter, role="compactor", rounds=60, pause_s=3.0)
        sim.start(expirer, role="gc")
        sim.start(tolerant_reader, "a", role="reader", expected_state=expected_state)
        sim.start(tolerant_reader, "b", role="reader", expected_state=expected_state)
        sim.run(hours=4)
        check_final(sim, expected_state)


async def tolerant_reader(process: SimProcess, expected_state: ExpectedState) -> None:
    """Open again after an error, as a caller would."""
    for _ in range(5):
        try:
            await reader(process, expected_state, seconds=60)
        except ShaleError:
            await anyio.sleep(5)
