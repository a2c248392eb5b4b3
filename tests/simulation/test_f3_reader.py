"""Readers under faults: rows F3.1 to F3.9 of docs/protocol.md 16.3.

The writer numbers its rows, so what a reader sees tells up to which write it has seen; anything else is a gap.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from shale.engine.batch import WriteBatch
from shale.engine.db_reader import DbReader
from shale.errors import CheckpointMissing, CorruptionError, ShaleError
from shale.garbage.options import GcOptions, TaskOptions
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.sst.options import SstOptions
from shale.testing.database_rules import DatabaseRules
from shale.testing.faults import Fault
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Manifest, Row
from shale_compactor.execution.options import ExecutorOptions
from tests.simulation import lsm
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.gc_house import collector
from tests.simulation.neighbours import eager_collector, lifter
from tests.simulation.writers import open_db

if TYPE_CHECKING:
    from shale.engine.opening import Opening

EAGER = GcOptions(compacted=TaskOptions(interval_s=5.0, min_age_s=0.0), wal=TaskOptions(interval_s=5.0, min_age_s=0.0))
"""Twice per poll of a reader, all it can take, but not what a job has not committed yet (docs/protocol.md 8.2)."""
POLL_S = 10.0
LIFETIME_S = 60.0
READ_S = 200.0
"""The writers of the rows that use it are done within 180 seconds."""


@dataclass
class Book:
    """Every write in order: ``(seq, key, value)``."""

    writes: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    durable_seq: int = 0
    scans: int = 0

    def state_at(self, seq: int) -> dict[bytes, bytes]:
        return {key: value for written, key, value in self.writes if written <= seq}

    def check(self, rows: list[Row], *, at_least: int = 0) -> int:
        """The rows are the state after one of the writes, and not an older one than before; which."""
        self.scans += 1
        seen = max((row.seq for row in rows), default=0)
        assert seen >= at_least, f"went back from {at_least} to {seen}"
        found = {row.key: row.value for row in rows}
        assert len(found) == len(rows), "a key twice"
        assert found == self.state_at(seen), f"a gap below {seen}"
        return seen


async def writer(process: SimProcess, book: Book, *, rounds: int = 60, pause_s: float = 3.0) -> None:
    """Rows with numbers; flushes of both kinds."""
    rng = process.rng
    async with open_db(process) as db:
        for number in range(rounds):
            key, value = b"key-%02d" % rng.randrange(12), b"%d/" % number + bytes(rng.randrange(40))
            handle = await db.put(key, value)
            book.writes.append((handle.seq, key, value))
            draw = rng.random()
            if draw < 0.5:
                await db.flush("wal" if draw < 0.35 else "memtable")
            await anyio.sleep(rng.uniform(0, pause_s))
            book.durable_seq = db.durable_seq
        await db.flush("wal")
        book.durable_seq = db.durable_seq


async def bulk_writer(process: SimProcess, book: Book, *, rounds: int) -> None:
    """Batches of 100 rows, more in all than a scan merges at once; each becomes an L0."""
    rng = process.rng
    async with open_db(process) as db:
        for number in range(rounds):
            batch = WriteBatch()
            rows = [(b"key-%03d" % rng.randrange(400), b"%d/" % number + bytes(500)) for _ in range(100)]
            for key, value in rows:
                batch.put(key, value)
            seq = (await db.write(batch)).seq
            book.writes += [(seq, key, value) for key, value in rows]
            await db.flush("memtable")
            await anyio.sleep(rng.uniform(0, 10))


def open_reader(process: SimProcess, **options: Any) -> "Opening[DbReader]":
    settings: dict[str, Any] = {"manifest_poll_interval": POLL_S, "checkpoint_lifetime": LIFETIME_S, **options}
    return DbReader.open("db", store=process.network, env=process.env, metrics=process.metrics, **settings)


async def until_created(process: SimProcess) -> None:
    manifests = manifests_of(process)
    while await manifests.try_read_latest() is None:  # noqa: ASYNC110 - a store has no events
        await anyio.sleep(1)


def manifests_of(process: SimProcess) -> ManifestStore:
    return ManifestStore(process.store, "db", process.env, process.metrics)


async def reader(
    process: SimProcess, book: Book, *, seconds: float = 300.0, row_pause_s: float = 0.0, **options: Any
) -> DbReader:
    """Scan and look up again and again; every answer must be right, and none older than one before."""
    await until_created(process)
    seen = 0
    async with open_reader(process, **options) as db:
        started = process.clock.monotonic_s()
        while process.clock.monotonic_s() < started + seconds:
            rows = []
            async for row in db.scan():
                rows.append(row)
                await anyio.sleep(row_pause_s)
            seen = book.check(rows, at_least=seen)
            for row in rows[:3]:
                again = await db.get_row(row.key)
                assert again is not None
                assert again.seq >= row.seq
                assert (again.seq, again.key, again.value) in book.writes
            await anyio.sleep(process.rng.uniform(0, POLL_S))
    return db


async def expirer(process: SimProcess, *, rounds: int = 80) -> None:
    """The first step of every pass of a collector."""
    await until_created(process)
    stored = await manifests_of(process).load()
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, 10))
        await stored.refresh()
        await remove_expired_checkpoints(stored, process.env.clock.now_ms())


def watch(sim: Simulation) -> None:
    sim.watch(DatabaseRules(sim, "db"))


def latest(sim: Simulation) -> Manifest:
    (rules,) = sim._rules
    assert isinstance(rules, DatabaseRules)
    return rules.manifests.latest


async def last_reader(process: SimProcess) -> list[Row]:
    async with open_reader(process) as db:
        return [row async for row in db.scan()]


def check_final(sim: Simulation, book: Book) -> None:
    """Once everything is calm a new reader sees everything that is durable."""
    sim.heal()
    sim.run(hours=3)
    if not sim.objects("db/manifest/"):
        return  # the writer died before there was a database
    process = sim.start(last_reader, "last", role="reader")
    sim.run(hours=1)
    assert process.error is None, process.error
    assert book.check(process.result) >= book.durable_seq


@simulated
def test_f3_1_a_killed_reader_leaves_a_checkpoint_that_expires(seed: int) -> None:
    book = Book()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, book=book)
        killed = sim.start(reader, book=book)
        sim.at(sim.rng.uniform(20, 120), killed.kill)
        sim.run(seconds=130)
        assert killed.is_killed
        sim.start(expirer, role="gc")
        sim.run(hours=1)
        assert not latest(sim).checkpoints
        check_final(sim, book)


@simulated_slowly
@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
def test_f3_2_a_partition_longer_than_the_lifetime(seed: int, collects: bool) -> None:
    """The reader sleeps through its lease; afterwards it is right or fails, and it establishes itself again."""
    book = Book()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, book=book, rounds=100)
        sim.start(lifter, role="compactor", rounds=400, pause_s=3.0)
        sleeper = sim.start(until_it_works_again, role="reader", book=book)
        sim.at(sim.rng.uniform(20, 60), lambda: sleeper.freeze(200))
        if collects:
            sim.start(expirer, role="gc")
            sim.start(eager_collector, role="gc", rounds=200, pause_s=5.0)
        sim.run(hours=1)
        assert sleeper.error is None, sleeper.error
        assert sleeper.result > 0
        check_final(sim, book)


async def until_it_works_again(process: SimProcess, book: Book) -> int:
    """Errors are allowed for a while, wrong answers never; counts the scans after the last error."""
    await until_created(process)
    seen = good = 0
    async with open_reader(process) as db:
        for _ in range(60):
            try:
                seen = book.check([row async for row in db.scan()], at_least=seen)
                good += 1
            except (CheckpointMissing, CorruptionError):
                good = 0
            await anyio.sleep(process.rng.uniform(0, POLL_S))
        assert good >= 10, good
        assert db.problem is None
    return good


@simulated
def test_f3_3_the_database_changes_before_the_checkpoint_lands(seed: int) -> None:
    """Between reading the manifest and the commit others write: the pinned manifest is the written one."""
    book = Book()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, book=book)
        sim.start(lifter, role="compactor", rounds=60, pause_s=1.0)
        late = sim.start(pinned_is_written, book=book, role="reader")
        for skip in range(3):
            late.freeze_before("put", "/manifest/", sim.rng.uniform(1, 20), skip=skip)
        sim.run(hours=1)
        assert late.error is None, late.error
        check_final(sim, book)


async def pinned_is_written(process: SimProcess, book: Book) -> None:
    await until_created(process)
    manifests = manifests_of(process)
    seen = 0
    async with open_reader(process) as db:
        for _ in range(12):
            seen = book.check([row async for row in db.scan()], at_least=seen)
            checkpoint_id = db.checkpoint_id
            assert checkpoint_id is not None
            written = await manifests.read(db.manifest_id)
            assert written is not None
            entry = written.checkpoint(checkpoint_id)
            assert entry is not None
            assert entry.manifest_id == db.manifest_id
            assert db.manifest.tree == written.tree
            await anyio.sleep(POLL_S / 2)


@simulated_slowly
def test_f3_4_wal_files_go_while_they_are_replayed(seed: int) -> None:
    """A reader that only follows has no protection: what it shows has no gaps all the same."""
    book = Book()
    with Simulation(seed, options=SimOptions(latency_s=1.0)) as sim:
        watch(sim)
        sim.start(writer, book=book, pause_s=1.0)
        sim.start(eager_collector, role="gc", rounds=50, pause_s=1.0)
        brief = {"book": book, "seconds": READ_S}
        follower = sim.start(reader, **brief, follow_latest=True, manifest_poll_interval=2.0)
        managed = sim.start(reader, "managed", role="reader", **brief, max_memtable_bytes=300)
        sim.run(hours=1)
        assert managed.error is None, managed.error
        assert follower.error is None, follower.error
        check_final(sim, book)


@simulated_slowly
def test_f3_5_a_long_scan_outlives_its_checkpoint(seed: int) -> None:
    """A scan over many replacements and longer than a lease completes, though a collector takes all it can."""
    book = Book()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(bulk_writer, role="writer", book=book, rounds=50)
        sim.run(seconds=60)
        sim.start(lsm.compactor, options=COMPACTION)
        sim.start(collector, role="gc", options=EAGER)
        scanning = sim.start(slow_scan, book=book, role="reader")
        sim.run(hours=1, until=lambda: not scanning.is_running)
        assert scanning.error is None, scanning.error
        replaced, deleted = scanning.result
        assert replaced >= 3
        assert deleted, "the collector had nothing to do"


COMPACTION = replace(
    lsm.OPTIONS,
    coordinator=replace(lsm.OPTIONS.coordinator, checkpoint_lifetime_s=30.0),
    executor=ExecutorOptions(sst=SstOptions(), max_sst_size_bytes=100_000, max_subcompactions=1),
)


async def slow_scan(process: SimProcess, book: Book) -> tuple[int, int]:
    """How many checkpoints replaced the one of the scan, and how many SSTs went meanwhile."""
    history = process.sim.history
    checkpoints = set()
    async with open_reader(process, read_ahead_bytes=8192, block_cache_bytes=0) as db:
        deleted = len([one for one in history.of("/compacted/") if one.op == "delete"])
        rows = []
        async for row in db.scan():
            rows.append(row)
            checkpoints.add(db.checkpoint_id)
            await anyio.sleep(5 * LIFETIME_S / 300)
        book.check(rows)
        assert db.problem is None
    return len(checkpoints) - 1, len([one for one in history.of("/compacted/") if one.op == "delete"]) - deleted


@simulated
def test_f3_6_a_pinned_reader_loses_its_checkpoint(seed: int) -> None:
    """Later reads may fail; they are never wrong."""
    book = Book()
    with Simulation(seed) as sim:
        watch(sim)
        sim.start(writer, book=book)
        sim.run(seconds=40)
        owner = sim.start(reader, "owner", role="reader", book=book, seconds=60)
        sim.run(seconds=15)
        *_, checkpoint = latest(sim).checkpoints  # two of them while the owner moves on to a newer state
        pinned = sim.start(pinned_reader, role="reader", book=book, checkpoint=checkpoint.id)
        sim.start(lsm.compactor)
        sim.start(collector, role="gc", options=EAGER)
        sim.run(minutes=10, until=lambda: not pinned.is_running)
        assert owner.error is None
        assert pinned.error is None, pinned.error
        assert pinned.result >= 1


async def pinned_reader(process: SimProcess, book: Book, checkpoint: Any) -> int:
    answers = []
    async with open_reader(process, checkpoint=checkpoint, block_cache_bytes=0) as db:
        for _ in range(30):
            try:
                answers.append(book.check([row async for row in db.scan()]))
            except CorruptionError as error:
                assert "gone" in error.message  # noqa: PT017 - any other damage would be a wrong answer
            await anyio.sleep(10)
    assert len(set(answers)) == 1, "a pinned reader never moves"
    return len(answers)


@simulated_slowly
def test_f3_7_a_conservative_replay_gives_no_row_twice(seed: int) -> None:
    """The WAL files behind ``replay_after_wal_id`` overlap with L0, and tables are kept over flushes."""
    book = Book()
    with Simulation(seed, options=SimOptions(latency_s=0.5)) as sim:
        watch(sim)
        sim.start(writer, book=book, pause_s=0.5, rounds=120)
        brief = {"book": book, "seconds": READ_S}
        readers = [
            sim.start(reader, f"r{size}", role="reader", **brief, max_memtable_bytes=size, manifest_poll_interval=1.0)
            for size in (1, 500, 1 << 20)
        ]
        sim.run(hours=1)
        assert [one.error for one in readers] == [None] * 3
        check_final(sim, book)


@simulated
@pytest.mark.parametrize("attributes", [True, False], ids=["put ids", "plain"])
def test_f3_8_the_answer_to_the_checkpoint_is_lost(seed: int, attributes: bool) -> None:
    """Exactly one entry is ours."""
    book = Book()
    with Simulation(seed, options=SimOptions(attributes=attributes)) as sim:
        watch(sim)
        sim.start(writer, book=book)
        sim.run(seconds=30)
        unlucky = sim.start(idle_reader, role="reader", book=book)
        for skip in range(4):
            unlucky.fail("put", "/manifest/", (Fault.AFTER, Fault.LATE)[sim.rng.randrange(2)], skip=2 * skip)
        sim.run(seconds=60)
        assert len(latest(sim).checkpoints) == 1
        sim.run(hours=1)
        assert unlucky.error is None, unlucky.error
        assert not latest(sim).checkpoints
        check_final(sim, book)


async def idle_reader(process: SimProcess, book: Book) -> None:
    """Nobody uses old states, so there is one checkpoint at a time."""
    async with open_reader(process) as db:
        await anyio.sleep(200)
        book.check([row async for row in db.scan()])


@simulated
def test_f3_9_closing_while_a_poll_is_in_flight(seed: int) -> None:
    """The checkpoint is removed, also one whose commit the close interrupted."""
    book = Book()
    with Simulation(seed, options=SimOptions(latency_s=0.3)) as sim:
        watch(sim)
        sim.start(writer, book=book, rounds=80, pause_s=2.0)
        sim.run(seconds=20)
        closing = [
            sim.start(reader, f"r{number}", role="reader", book=book, seconds=sim.rng.uniform(0, 60))
            for number in range(4)
        ]
        sim.run(hours=1)
        assert [one.error for one in closing] == [None] * 4
        assert not latest(sim).checkpoints
        check_final(sim, book)


@simulated
def test_readers_in_a_swarm_of_faults(seed: int) -> None:
    """Whatever happens, no answer is wrong; in the end everything durable is there."""
    book = Book()
    with Simulation(seed, swarm=True) as sim:
        watch(sim)
        sim.start(writer, book=book)
        sim.start(lifter, role="compactor", rounds=60, pause_s=3.0)
        sim.start(expirer, role="gc")
        sim.start(tolerant_reader, "a", role="reader", book=book)
        sim.start(tolerant_reader, "b", role="reader", book=book)
        sim.run(hours=4)
        check_final(sim, book)


async def tolerant_reader(process: SimProcess, book: Book) -> None:
    """Opens again after an error, as a caller would."""
    for _ in range(5):
        try:
            await reader(process, book, seconds=60)
        except ShaleError:
            await anyio.sleep(5)
