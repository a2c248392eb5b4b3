"""Full L0s, no WAL, tables cut by replay, and an epoch claimed without a fence.

Source: docs/reference/protocol.md 16.2.
"""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from shale.errors import ClosedError, FencedError
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from tests.simulation.background_actors import l0_promoter
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.row_model import RowModel, Told
from tests.simulation.writer.writers import final_rows, open_db, put, wal_ids, writer

TIGHT = {"l0_sst_size_bytes": 400, "max_unflushed_bytes": 2000, "l0_max_ssts": 3, "l0_max_ssts_per_key": 3}


def run_writer(sim: Simulation, scenario: Callable[..., Awaitable[object]]) -> tuple[SimProcess, RowModel]:
    """Run a writer to its end under the rules of a database; return it and the model of its rows."""
    sim.watch(DatabaseInvariants("db"))
    model = RowModel()
    process = sim.start(scenario, "w", role="writer", model=model)
    sim.run(hours=1)
    assert process.error is None, process.error
    return process, model


@pytest.mark.fault("F2.17")
@simulated
@pytest.mark.parametrize("close", ["memtable", "wal"])
@pytest.mark.parametrize("interval", ["100ms", None])
def test_writes_wait_when_l0_is_full_and_nothing_compacts(seed: int, close: str, interval: str | None) -> None:
    """Callers wait at the limit, the manifest stays small, the writer can close, and nothing is lost."""

    async def scenario(process: SimProcess, model: RowModel) -> int:
        db = await open_db(process, flush_interval=interval, **TIGHT)
        written = 0

        async def load() -> None:
            nonlocal written
            while True:
                await put(db, model, process.name, b"%04d" % written, process.rng.randbytes(40))
                written += 1

        async def load_until_closed() -> None:
            with pytest.raises(ClosedError):
                await load()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load_until_closed)
            await anyio.sleep(100)
            stalled_at = written
            assert db.status.unflushed_bytes >= 2000
            assert len(db.status.manifest.tree.l0) == 3
            versions = db.status.manifest_id
            await anyio.sleep(500)
            # One version, at 450 s: the checkpoint of the writer is renewed after half of its lifetime.
            assert (written, db.status.manifest_id) == (stalled_at, versions + 1)
            await db.close(close)
        last = max(attempt.seq for attempt in model.attempts)
        model.durable_through(process.name, last)
        return stalled_at

    with Simulation(seed) as sim:
        process, model = run_writer(sim, scenario)
        assert process.result > 10
        model.check(final_rows(sim))


@pytest.mark.fault("F2.17")
@simulated_slowly
@pytest.mark.parametrize("wal", [True, False], ids=["WAL", "no WAL"])
def test_memory_stays_bounded_under_overload(seed: int, wal: bool) -> None:
    """Ten times more callers than capacity, some of which cancel: the limit holds, and no batch is split.

    A put that gives up while waiting has written nothing; a compactor brings room; closing ends all waits.
    """
    row_bytes = 4 + 60 + 28
    callers = 10 * TIGHT["max_unflushed_bytes"] // row_bytes

    async def scenario(process: SimProcess, model: RowModel) -> tuple[int, int, int]:
        db = await open_db(process, wal_enabled=wal, **TIGHT)
        rng = process.rng
        peak = given_up = refused = 0

        async def caller(number: int) -> None:
            nonlocal peak, given_up, refused
            for turn in range(1000):
                attempt = model.attempt(process.name, b"%04d" % number, b"%d/" % turn + bytes(rng.randrange(55)))
                with anyio.move_on_after(rng.choice((0.5, 5.0, 1000.0))) as timeout:
                    try:
                        attempt.seq = (await db.put(attempt.key, attempt.value)).seq
                    except ClosedError:
                        attempt.told = Told.FAILED
                        refused += 1
                        return
                if timeout.cancelled_caught:
                    attempt.told = Told.FAILED
                    given_up += 1
                peak = max(peak, db.status.unflushed_bytes)
                await anyio.sleep(rng.uniform(0, 2))

        async with anyio.create_task_group() as tasks:
            for number in range(callers):
                tasks.start_soon(caller, number)
            await anyio.sleep(100)
            process.sim.start(l0_promoter, "compactor", role="compactor", rounds=40)
            await anyio.sleep(100)
            await db.close("memtable")
        model.durable_through(process.name, max(attempt.seq or 0 for attempt in model.attempts))
        return peak, given_up, refused

    with Simulation(seed) as sim:
        process, model = run_writer(sim, scenario)
        peak, given_up, refused = process.result
        assert peak <= TIGHT["max_unflushed_bytes"] + 2 * row_bytes
        assert refused == callers
        assert given_up > callers
        model.check(final_rows(sim))


@pytest.mark.fault("F2.17")
@simulated
def test_a_compactor_ends_the_write_stall(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=80, pause_s=0.01, **TIGHT)
        sim.start(l0_promoter, "compactor", role="compactor", rounds=400)
        sim.run(hours=1)
        assert process.error is None, process.error
        model.check(final_rows(sim))


@pytest.mark.fault("F2.18")
@simulated
def test_without_a_wal_only_flushed_rows_survive(seed: int) -> None:
    async def scenario(process: SimProcess, model: RowModel) -> None:
        db = await open_db(process, wal_enabled=False)
        for number in range(20):
            await put(db, model, process.name, b"%d" % (number % 7), b"%d" % number)
            if number == 12:
                await db.flush()
                model.durable_through(process.name, db.status.durable_seq)
        assert db.status.durable_seq == 13
        for attempt in model.attempts:
            if attempt.told is Told.UNKNOWN:
                attempt.told = Told.FAILED
        process.kill()
        await anyio.sleep(1)

    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.start(scenario, "w", role="writer", model=model)
        sim.run(hours=1)
        assert wal_ids(sim) == [1], "the fence is written all the same"
        assert sim.objects("db/wal/")["db/wal/00000000000000000001.sst"] == b""
        model.check(final_rows(sim))


@pytest.mark.fault("F2.6b")
@simulated
def test_a_kill_after_the_first_flush_of_a_replay_loses_no_row(seed: int) -> None:
    """The stamp names its content, not the end of the WAL: the next writer replays the rest."""

    async def fill(process: SimProcess, model: RowModel) -> None:
        async with open_db(process, flush_interval=None, l0_sst_size_bytes=5000) as db:
            for number in range(15):
                await put(db, model, process.name, b"%02d" % number, bytes(60))
                if number % 3 == 2:
                    await db.flush("wal")
            model.durable_through(process.name, db.status.last_seq)
            process.kill()
            await anyio.sleep(1)

    with Simulation(seed) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        sim.start(fill, "first", role="writer", model=model)
        sim.run(hours=1)
        victim = sim.start(writer, "victim", role="writer", model=model, rounds=0, l0_sst_size_bytes=150)
        victim.kill_after("put", "/manifest/", skip=1)
        sim.run(hours=1)
        assert victim.is_killed
        assert rules.manifests.latest.last_l0_seq > 0
        model.check(final_rows(sim))


@pytest.mark.fault("F2.23")
@simulated
def test_a_writer_notices_an_epoch_that_was_claimed_without_a_fence(seed: int) -> None:
    """The writer notices within a poll; its WAL files until then are replayed."""

    async def tool(process: SimProcess) -> None:
        manifests = ManifestStore(process.store, "db", process.env, process.metrics)
        await FenceableManifest.claim(await manifests.load(), WRITER)

    async def scenario(process: SimProcess, model: RowModel) -> float:
        db = await open_db(process, flush_interval=None)

        async def load() -> None:
            for number in range(10_000):
                await put(db, model, process.name, b"%d" % (number % 5), b"%d" % number)
                await db.flush("wal")
                model.durable_through(process.name, db.status.durable_seq)
                await anyio.sleep(0.1)

        with pytest.raises(FencedError):
            await load()
        return process.clock.monotonic_s()

    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        process = sim.start(scenario, "w", role="writer", model=model)
        sim.run(seconds=10 + sim.rng.random())
        sim.start(tool, "tool", role="writer")
        sim.run(minutes=10)
        assert process.result < 13
        model.check(final_rows(sim))
