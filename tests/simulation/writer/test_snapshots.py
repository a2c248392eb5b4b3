"""Snapshots and transactions of a writer, beside a compactor and a collector with ``min_age`` 0.

What an open snapshot or transaction reads never changes while rows are flushed, compacted and collected, and a commit
fails exactly when another write conflicts with what it relies on.
"""

import random
from functools import partial
from typing import Any

import anyio

import shale
from shale.errors import TransactionConflict
from shale.merge_operators import concatenate
from shale.testing.simulation import SimProcess
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.expected_state import (
    KEYS,
    ExpectedState,
    run_in_a_swarm_of_faults,
    run_without_faults,
    writing,
)
from tests.simulation.writer.writers import open_db

COLLECTED = "an SST that was there when a snapshot began was collected"
FLUSHED = "a flush kept versions for a snapshot"
CONFLICT = "a transaction met a conflict"
COMMITTED = "a transaction was committed over a flush"


def some_key(rng: random.Random) -> bytes:
    return b"key-%03d" % rng.randrange(KEYS)


async def check_reads(rng: random.Random, reads: Any, state: dict[bytes, bytes]) -> set[bytes]:
    """Read some keys or a range in one of many ways; return the keys that were read."""
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


async def looking(
    process: SimProcess, db: shale.Db, expected_state: ExpectedState, reached: CoverageMarks, until: anyio.Event
) -> None:
    """Open snapshots one after the other and read each for a while."""
    rng = process.rng
    while not until.is_set():
        async with db.snapshot(durable=rng.random() < 0.4) as snapshot:
            assert snapshot.seq in (db.status.last_seq, db.status.durable_seq)
            state, began_with = expected_state.state_at(snapshot.seq), db.status.manifest
            for _ in range(rng.randrange(1, 8)):
                await anyio.sleep(rng.uniform(0, 15))
                await check_reads(rng, snapshot, state)
            rows = [row async for row in snapshot.scan(read_ahead_bytes=rng.choice((700, 3000)))]
            assert [(row.key, row.value) for row in rows] == sorted(state.items())
            there = set(process.sim.objects("db/compacted/"))
            reached(COLLECTED, when=any(f"db/compacted/{sst_id}.sst" not in there for sst_id in began_with.ssts()))
            reached(FLUSHED, when=db.status.manifest.recent_snapshot_min_seq < db.status.manifest.last_l0_seq)
        expected_state.scans += 1


async def changing(
    process: SimProcess, db: shale.Db, expected_state: ExpectedState, reached: CoverageMarks, until: anyio.Event
) -> None:
    """Run transactions one after the other; compare what they read with the recorded state at their commit."""
    rng = process.rng
    while not until.is_set():
        serializable = rng.random() < 0.6
        transaction = await db.transaction("serializable" if serializable else "snapshot")
        state, relied, l0_seq = expected_state.state_at(transaction.seq), set[bytes](), db.status.manifest.last_l0_seq
        writes: dict[bytes, bytes] = {}
        for _ in range(rng.randrange(1, 4)):
            seen = await check_reads(rng, transaction, state)
            relied |= seen if serializable else set()
            key, value = some_key(rng), b"tx%d" % expected_state.lookups
            transaction.merge(key, value)
            writes[key] = state[key] = state.get(key, b"") + value
            await anyio.sleep(rng.uniform(0, 3))
        changed = {key for seq, key, _, _ in expected_state.writes if seq > transaction.seq}
        is_conflict = bool(changed & (relied | set(writes)))
        try:
            # The call may have to wait before it commits; then the book may have got longer.
            before = len(expected_state.writes)
            handle = await transaction.commit()
        except TransactionConflict:
            late = {key for _, key, _, _ in expected_state.writes[before:]}
            assert is_conflict or late & (relied | set(writes))
            reached(CONFLICT)
        else:
            assert handle is not None
            late = {key for _, key, _, _ in expected_state.writes[before:]}
            assert not is_conflict
            assert not late & (relied | set(writes))
            expected_state.writes += [(handle.seq, key, value, False) for key, value in writes.items()]
            reached(COMMITTED, when=db.status.manifest.last_l0_seq > l0_seq)
        expected_state.lookups += 1


async def busy_writer(
    process: SimProcess, expected_state: ExpectedState, reached: CoverageMarks, *, rounds: int = 25
) -> None:
    """Run a writer with snapshots and transactions beside its writes."""
    settings = {"block_cache_bytes": process.rng.choice((0, 20_000)), "merge_operator": concatenate}
    async with open_db(process, **settings) as db:
        done = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(looking, process, db, expected_state, reached, done)
                tasks.start_soon(changing, process, db, expected_state, reached, done)
            await writing(process, db, expected_state, rounds=rounds)
            done.set()
        assert db.status.open_snapshots == 0, "a sequence number is still held"
        rows = {row.key: row.value async for row in db.scan()}
        assert rows == expected_state.state_at(db.status.last_seq)


@row(COLLECTED, FLUSHED, CONFLICT, COMMITTED, within=3, default=3)
def test_what_a_snapshot_shows_never_changes(seed: int, reached: CoverageMarks) -> None:
    expected_state = run_without_faults(seed, partial(busy_writer, reached=reached))
    assert expected_state.scans >= 2
    assert expected_state.lookups >= 5


@row(COLLECTED, FLUSHED, CONFLICT, COMMITTED, default=1)  # ten seconds each
def test_snapshots_and_transactions_in_a_swarm_of_faults(seed: int, reached: CoverageMarks) -> None:
    """Errors are allowed when the store fails; wrong rows and wrong conflict results are not."""
    run_in_a_swarm_of_faults(seed, partial(busy_writer, reached=reached))
