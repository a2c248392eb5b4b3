"""Snapshots and transactions of a writer that flushes, beside a compactor and a collector with ``min_age`` 0.

Whatever is flushed, folded, compacted and collected, with a snapshot or a transaction open over all of it: what they
show never changes, and a commit fails exactly if somebody wrote what it relies on.
"""

import random
from dataclasses import replace
from typing import Any

import anyio

import shale
from shale.errors import CorruptionError, ShaleError, TransactionConflict
from shale.merge_operators import concatenate
from shale.testing.database_rules import DatabaseRules
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import FEW_SEEDS
from tests.simulation.reached import Reached, row
from tests.simulation.writers import open_db
from tests.simulation.written_book import KEYS, Book, start_neighbours, writing

COLLECTED = "an SST that was there when a snapshot began was collected"
FLUSHED = "a flush kept versions for a snapshot"
CONFLICT = "a transaction met a conflict"
COMMITTED = "a transaction was committed over a flush"


def some_key(rng: random.Random) -> bytes:
    return b"key-%03d" % rng.randrange(KEYS)


async def check_reads(rng: random.Random, reads: Any, state: dict[bytes, bytes]) -> set[bytes]:
    """Look at some keys or a range in one of many ways; the keys that were looked at."""
    keys = [some_key(rng) for _ in range(rng.choice((1, 9)))]
    if rng.random() < 0.5:
        values = [await reads.get(keys[0])] if len(keys) == 1 else await reads.get_many(keys)
        assert values == [state.get(key) for key in keys]
        return set(keys)
    start, stop = b"key-%03d" % rng.randrange(KEYS // 2), b"key-%03d" % rng.randrange(KEYS // 2, KEYS)
    reverse, limit = rng.random() < 0.4, rng.choice((None, None, 5))
    rows = [row async for row in reads.scan(start=start, stop=stop, reverse=reverse, limit=limit)]
    expected = sorted(((key, state[key]) for key in state if start <= key < stop), reverse=reverse)[:limit]
    assert [(row.key, row.value) for row in rows] == expected
    seen = {b"key-%03d" % number for number in range(KEYS) if start <= b"key-%03d" % number < stop}
    if limit is not None and len(rows) == limit:
        last = rows[-1].key
        seen = {key for key in seen if (key >= last if reverse else key <= last)}
    return seen


async def looking(process: SimProcess, db: shale.Db, book: Book, reached: Reached, until: anyio.Event) -> None:
    """Snapshots, one after the other, each looked at for a while."""
    rng = process.rng
    while not until.is_set():
        async with db.snapshot(durable=rng.random() < 0.4) as snapshot:
            assert snapshot.seq in (db.last_seq, db.durable_seq)
            state, began_with = book.state_at(snapshot.seq), db.manifest
            for _ in range(rng.randrange(1, 8)):
                await anyio.sleep(rng.uniform(0, 15))
                await check_reads(rng, snapshot, state)
            rows = [row async for row in snapshot.scan(read_ahead_bytes=rng.choice((700, 3000)))]
            assert [(row.key, row.value) for row in rows] == sorted(state.items())
            there = set(process.sim.objects("db/compacted/"))
            reached(COLLECTED, when=any(f"db/compacted/{sst_id}.sst" not in there for sst_id in began_with.ssts()))
            reached(FLUSHED, when=db.manifest.recent_snapshot_min_seq < db.manifest.last_l0_seq)
        book.scans += 1


async def changing(process: SimProcess, db: shale.Db, book: Book, reached: Reached, until: anyio.Event) -> None:
    """Transactions, one after the other; what they rely on is looked up in the book when they commit."""
    rng = process.rng
    while not until.is_set():
        serializable = rng.random() < 0.6
        transaction = await db.transaction("serializable" if serializable else "snapshot")
        state, relied, l0_seq = book.state_at(transaction.seq), set[bytes](), db.manifest.last_l0_seq
        writes: dict[bytes, bytes] = {}
        for _ in range(rng.randrange(1, 4)):
            seen = await check_reads(rng, transaction, state)
            relied |= seen if serializable else set()
            key, value = some_key(rng), b"tx%d" % book.lookups
            transaction.merge(key, value)
            writes[key] = state[key] = state.get(key, b"") + value
            await anyio.sleep(rng.uniform(0, 3))
        changed = {key for seq, key, _, _ in book.writes if seq > transaction.seq}
        is_conflict = bool(changed & (relied | set(writes)))
        try:
            # The call may have to wait before it commits; then the book may have got longer.
            before = len(book.writes)
            handle = await transaction.commit()
        except TransactionConflict:
            late = {key for _, key, _, _ in book.writes[before:]}
            assert is_conflict or late & (relied | set(writes))
            reached(CONFLICT)
        else:
            assert handle is not None
            late = {key for _, key, _, _ in book.writes[before:]}
            assert not is_conflict
            assert not late & (relied | set(writes))
            book.writes += [(handle.seq, key, value, False) for key, value in writes.items()]
            reached(COMMITTED, when=db.manifest.last_l0_seq > l0_seq)
        book.lookups += 1


async def busy_writer(process: SimProcess, book: Book, reached: Reached, *, rounds: int = 25) -> None:
    """A writer with snapshots and transactions beside its writes."""
    settings = {"block_cache_bytes": process.rng.choice((0, 20_000)), "merge_operator": concatenate}
    async with open_db(process, **settings) as db:
        done = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(looking, process, db, book, reached, done)
                tasks.start_soon(changing, process, db, book, reached, done)
            await writing(process, db, book, rounds=rounds)
            done.set()
        assert len(db._writer.active) == 0, "somebody still holds a sequence number"
        rows = {row.key: row.value async for row in db.scan()}
        assert rows == book.state_at(db.last_seq)


@row(COLLECTED, FLUSHED, CONFLICT, COMMITTED, within=3, default=FEW_SEEDS)
def test_what_a_snapshot_shows_never_changes(seed: int, reached: Reached) -> None:
    book = Book()
    with Simulation(seed) as sim:
        sim.watch(DatabaseRules(sim, "db"))
        process = sim.start(busy_writer, "writer", role="writer", book=book, reached=reached)
        sim.run(seconds=5)
        start_neighbours(sim)
        sim.run(hours=1)
        assert process.error is None, process.error
        assert book.scans >= 2
        assert book.lookups >= 5


@row(COLLECTED, FLUSHED, CONFLICT, COMMITTED, default=1)  # ten seconds each
def test_snapshots_and_transactions_in_a_swarm_of_faults(seed: int, reached: Reached) -> None:
    """Errors are allowed where the store fails; wrong rows and wrong verdicts never."""
    book = Book()
    faults = replace(SimOptions.swarm(random.Random(seed)), skew_ms=0)  # without skew min_age may be 0
    with Simulation(seed, options=faults) as sim:
        process = sim.start(busy_writer, "writer", role="writer", book=book, reached=reached)
        sim.run(seconds=5)
        start_neighbours(sim)
        sim.run(hours=4)
        if process.error is not None:
            error = process.error.exceptions[0] if isinstance(process.error, ExceptionGroup) else process.error
            assert isinstance(error, ShaleError), error
            assert not isinstance(error, CorruptionError), error
