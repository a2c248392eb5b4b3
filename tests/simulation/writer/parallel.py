"""Simulated databases whose WAL files are written in parallel: their clients, a reader, and the scenarios of F2.21.

Source: docs/reference/protocol.md 4.13.
"""

from typing import Any

import anyio

import shale
from shale.errors import FencedError, ShaleError
from shale.protocol.wal_store import first_missing
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.coverage_marks import is_two_phase
from tests.simulation.reader.reader_processes import open_reader
from tests.simulation.row_model import RowModel, Told
from tests.simulation.writer.writers import final_rows, open_db, reader_of_all, wal_ids

SLOW_PUTS = SimOptions(slow=0.3, slow_s=5.0)
"""Responses and requests overtake each other, so WAL files are written in any order."""
VERY_SLOW_PUTS = SimOptions(slow=0.1, slow_s=30.0)
"""Those of two-phase creates: a file, its flush and the manifest are many requests, and pass one that waits."""
ACKS = ("contiguous", "as_landed")


async def clients(
    process: SimProcess,
    model: RowModel,
    *,
    parallel: int | None = 3,
    ack: str = "contiguous",
    count: int = 6,
    rounds: int = 10,
    close: str = "memtable",
    **settings: Any,
) -> None:
    """Open, let several clients write durable rows at the same time, and close."""
    errors: list[ShaleError] = []

    async def client(db: shale.Db) -> None:
        try:
            for _ in range(rounds):
                await durable_put(process, db, model)
                await anyio.sleep(process.rng.uniform(0, 0.2))
        except ShaleError as error:
            errors.append(error)

    chosen = {"flush_interval": 0, "max_parallel_writes": parallel, "wal_ack": ack}
    async with open_db(process, **chosen | settings) as db:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(client, db)
        if errors:
            raise errors[0]
        await db.close(close)


async def durable_put(process: SimProcess, db: shale.Db, model: RowModel) -> None:
    """Write one row, sometimes flush the memtable, and wait until the row is durable."""
    key = b"key-%d" % process.rng.randrange(8)
    attempt = model.attempt(process.name, key, b"%s/%d" % (process.name.encode(), len(model.attempts)))
    try:
        handle = await db.put(key, attempt.value or b"")
    except ShaleError:
        attempt.told = Told.FAILED
        raise
    attempt.seq = handle.seq
    if process.rng.random() < 0.1:
        await db.flush("memtable")
    await handle.durable()
    attempt.told = Told.DURABLE


def gap_after_crash(seed: int, ack: str, parallel: int = 3) -> bool:
    """Kill a writer at one of its WAL puts; check the rows of the next one; return whether there was a gap."""
    with Simulation(seed, options=VERY_SLOW_PUTS if is_two_phase() else SLOW_PUTS) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        victim = sim.start(clients, "victim", role="writer", model=model, parallel=parallel, ack=ack, rounds=20)
        victim.kill_after("put", "/wal/", skip=parallel + seed % 40)
        sim.run(minutes=10)
        ids = wal_ids(sim)
        replayed_id = rules.manifests.latest.replay_after_wal_id
        had_gap = first_missing(ids, replayed_id) <= max(ids, default=0)
        model.check(final_rows(sim))
        after = wal_ids(sim)
        assert after == list(range(after[0], after[-1] + 1)), "the next writer left a gap"
        return had_gap


def succession(seed: int, ack: str) -> None:
    """Open a database that another writer is writing to; only the older writer is fenced, and no row is lost."""
    with Simulation(seed, options=SLOW_PUTS) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        old = sim.start(clients, "old", role="writer", model=model, ack=ack, rounds=10_000)
        sim.run(hours=1, until=lambda: len(wal_ids(sim)) > 10 + seed % 7)
        new = sim.start(clients, "new", role="writer", model=model, ack=ack, rounds=5)
        sim.run(hours=1)
        assert isinstance(old.error, FencedError)
        assert new.error is None, new.error
        model.check(final_rows(sim))


async def follower(process: SimProcess, seen: list[list[int]]) -> None:
    """Follow the database; record the sequence numbers that scans show; none goes away again."""
    while True:
        try:
            async with open_reader(process, manifest_poll_interval="1s") as db:
                while True:
                    seqs = sorted([row.seq async for row in db.scan()])
                    assert not seen or set(seen[-1]) <= set(seqs), "rows went away"
                    seen.append(seqs)
                    await anyio.sleep(process.rng.uniform(0, 2))
        except ShaleError:
            await anyio.sleep(5)  # no database yet


async def counting(process: SimProcess, *, rows: int, **settings: Any) -> None:
    """Write rows with keys of their own, several at a time."""
    async with open_db(process, flush_interval=0, max_parallel_writes=4, **settings) as db:
        async with anyio.create_task_group() as tasks:
            for number in range(rows):
                handle = await db.put(b"%06d" % number, b"value")
                tasks.start_soon(handle.durable)
                await anyio.sleep(0.05)
        await db.flush("wal")
        await anyio.sleep(3600)


def reader_at_a_gap(seed: int, ack: str) -> None:
    """Follow a writer that is killed with files in flight; the reader stops at a gap until the next writer fills it."""
    with Simulation(seed, options=SLOW_PUTS) as sim:
        sim.watch(DatabaseInvariants("db"))
        seen: list[list[int]] = []
        old = sim.start(counting, "old", role="writer", rows=400, wal_ack=ack)
        sim.start(follower, "reader", role="reader", seen=seen)
        old.kill_after("put", "/wal/", skip=20 + seed % 50)
        sim.run(minutes=5 if sim.two_phase else 1)  # two-phase creates are more requests, each of up to 10 s
        for seqs in seen:
            assert seqs == list(range(1, len(seqs) + 1)), "rows after a gap"
        sim.heal()
        heir = sim.start(reader_of_all, "heir", role="writer")
        sim.run(minutes=1)
        assert heir.error is None
        assert len(seen[-1]) == len(heir.result), "the reader did not go on"
