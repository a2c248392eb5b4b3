"""Scans and lookups of a writer that outlive the SSTs of their first state.

No checkpoint protects them. A compactor and a collector with ``min_age`` 0 run beside the writer, which flushes all the
time; every scan must still show the state at its sequence number. SlateDB's issue 2073 is a failure of this.

Source: docs/reference/protocol.md 16.3.
"""

from functools import partial

import anyio
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.errors import SstMissing
from shale.merge_operators import concatenate
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import FEW_SEEDS, simulated_slowly
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.expected_state import (
    KEYS,
    ExpectedState,
    run_in_a_swarm_of_faults,
    run_without_faults,
    start_background_actors,
    writing,
)
from tests.simulation.writer.writers import open_db

COLLECTED = "an SST of a scan was collected"
ELSEWHERE = "a read went on in a newer view"
AGAIN = "a scan let go of flushed memtables"


async def scanning(
    process: SimProcess, db: shale.Db, expected_state: ExpectedState, reached: CoverageMarks, until: anyio.Event
) -> None:
    """Run long scans, one after the other, each against the state at its start."""
    rng = process.rng
    while not until.is_set():
        reverse, durability = rng.random() < 0.4, rng.choice(("memory", "durable"))
        seq = db.status.last_seq if durability == "memory" else db.status.durable_seq
        scan = db.scan(reverse=reverse, durability=durability, read_ahead_bytes=rng.choice((700, 3000)))
        began_with = db.status.manifest
        if rng.random() < 0.2:
            await anyio.sleep(rng.uniform(0, 60))
        pause_s, sought = rng.uniform(0, 2), b"key-070"
        rows = await scan.next_batch(rng.choice((0, 1, 30)))
        expected = sorted(expected_state.state_at(seq).items(), reverse=reverse)
        if rng.random() < 0.4 and all((row.key > sought if reverse else row.key < sought) for row in rows):
            await anyio.sleep(pause_s)
            await scan.seek(sought)
            given = len(rows)
            rest = [row for row in expected[given:] if (row[0] <= sought if reverse else row[0] >= sought)]
            expected = expected[:given] + rest
        async for each in scan:
            rows.append(each)
            await anyio.sleep(pause_s)
            reached(AGAIN, when=scan._chunks._ref is not None and scan._chunks._ref.source is None)
        there = set(process.sim.objects("db/compacted/"))
        reached(COLLECTED, when=any(f"db/compacted/{sst_id}.sst" not in there for sst_id in began_with.ssts()))
        assert [(each.key, each.value) for each in rows] == expected, f"not the state at {seq}"
        expected_state.scans += 1


async def looking_up(process: SimProcess, db: shale.Db, expected_state: ExpectedState, until: anyio.Event) -> None:
    rng = process.rng
    while not until.is_set():
        keys = [b"key-%03d" % rng.randrange(KEYS + 10) for _ in range(rng.choice((1, 1, 9)))]
        durability = rng.choice(("memory", "durable"))
        first = db.status.last_seq if durability == "memory" else db.status.durable_seq
        values = (
            [await db.get(keys[0], durability=durability)]
            if len(keys) == 1
            else await db.get_many(keys, durability=durability)
        )
        for key, value in zip(keys, values, strict=True):
            assert value in expected_state.values_between(key, first, db.status.last_seq), f"{key!r} since {first}"
        expected_state.lookups += 1
        await anyio.sleep(rng.uniform(0, 2))


async def long_reader(
    process: SimProcess, expected_state: ExpectedState, reached: CoverageMarks, *, rounds: int = 60
) -> None:
    """Run a writer with three scans and two streams of lookups beside its writes."""
    settings = {
        "block_cache_bytes": process.rng.choice((0, 20_000)),
        "max_unflushed_bytes": process.rng.choice((4_000, 40_000)),
        "merge_operator": concatenate,
    }
    async with open_db(process, **settings) as db:
        done = anyio.Event()
        renew = db._writer.views.on_sst_missing

        async def noting(gone: SstMissing) -> None:
            await renew(gone)
            reached(ELSEWHERE)

        db._writer.views.on_sst_missing = noting
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(scanning, process, db, expected_state, reached, done)
            for _ in range(2):
                tasks.start_soon(looking_up, process, db, expected_state, done)
            await writing(process, db, expected_state, rounds=rounds)
            done.set()
        assert db.status.open_snapshots == 0, "a sequence number is still held"


@pytest.mark.slow
@pytest.mark.fault("F3.2", "F3.5")
@row(COLLECTED, ELSEWHERE, AGAIN, within=3, default=3)
def test_long_scans_and_lookups_of_a_writer_show_one_state(seed: int, reached: CoverageMarks) -> None:
    expected_state = run_without_faults(seed, partial(long_reader, reached=reached))
    assert expected_state.scans >= 3
    assert expected_state.lookups >= 20


@pytest.mark.fault("F3.5")
@row(COLLECTED, ELSEWHERE, AGAIN, default=FEW_SEEDS)
def test_long_reads_in_a_swarm_of_faults(seed: int, reached: CoverageMarks) -> None:
    """Errors are allowed when the store fails; wrong rows are not.

    The compactor's checkpoints are shorter than the delays, so SSTs go in the moment in which they are replaced.
    """
    run_in_a_swarm_of_faults(seed, partial(long_reader, reached=reached, rounds=30))


@pytest.mark.slow
@simulated_slowly
def test_a_reader_without_protection_is_right_or_says_what_it_misses(seed: int) -> None:
    """Lookups continue in the newest state; an open scan cannot, because nothing pins its state."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(latency_s=0.3)) as sim:
        sim.watch(DatabaseInvariants("db"))
        sim.start(plain_writer, "writer", role="writer", expected_state=expected_state)
        sim.run(seconds=5)
        start_background_actors(sim)
        process = sim.start(follower, role="reader", expected_state=expected_state)
        sim.run(hours=1, until=lambda: not process.is_running)
        assert process.error is None, process.error


async def plain_writer(process: SimProcess, expected_state: ExpectedState) -> None:
    async with open_db(process, merge_operator=concatenate) as db:
        await writing(process, db, expected_state, rounds=80)


async def follower(process: SimProcess, expected_state: ExpectedState) -> None:
    opened = DbReader.open(
        "db",
        store=process.connection,
        env=process.env,
        metrics=process.metrics,
        open_timeout=None,
        follow_latest=True,
        manifest_poll_interval=10.0,
        block_cache_bytes=0,
        merge_operator=concatenate,
    )
    rng = process.rng
    async with opened as reader:
        for _ in range(60):
            first = reader.visible_seq
            key = b"key-%03d" % rng.randrange(KEYS)
            value = await reader.get(key)
            assert value in expected_state.values_between(key, first, reader.visible_seq)
            rows = []
            first = last = reader.visible_seq
            try:
                async for each in reader.scan(reverse=rng.random() < 0.5, read_ahead_bytes=1000):
                    if not rows:
                        last = reader.visible_seq
                    rows.append((each.key, each.value))
                    await anyio.sleep(rng.uniform(0, 0.3))
            except SstMissing:
                assert rows, "a scan that gave nothing yet begins anew"
                continue
            seqs = {first, *(written for written, *_ in expected_state.writes if first < written <= last)}
            assert any(sorted(rows) == sorted(expected_state.state_at(seq).items()) for seq in seqs)
            await anyio.sleep(rng.uniform(0, 5))
