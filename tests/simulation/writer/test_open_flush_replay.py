"""One fault each during open, WAL flush, memtable flush and replay.

Source: docs/reference/protocol.md 16.2.
"""

import anyio
import pytest

from shale.engine.wal import replay
from shale.errors import FencedError, InvalidClockTick, ShaleError, UnavailableError, WalTruncated
from shale.format.manifest import decode_manifest
from shale.format.names import wal_key
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.options import RetryPolicy, StoreOptions
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.faults import Fault
from shale.testing.sim_process import START_MS, SimProcess
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.background_actors import eager_collector, l0_promoter, pinner
from tests.simulation.conftest import simulated
from tests.simulation.row_model import RowModel
from tests.simulation.writer.writers import PAIR, final_rows, open_db, put, put_pair, wal_ids, writer


async def appender(
    process: SimProcess, model: RowModel, *, count: int, every_s: float, flush: str = "wal", poll: str = "1s"
) -> None:
    """Put rows and wait for the durability of each, until the process ends."""
    async with open_db(process, flush_interval=None, manifest_poll_interval=poll) as db:
        for number in range(count):
            await put(db, model, process.name, b"%s-%d" % (process.name.encode(), number), b"%d" % number)
            await db.flush(flush)
            model.durable_through(process.name, db.status.durable_seq)
            await anyio.sleep(every_s)
        await anyio.sleep(3600)


@pytest.mark.fault("F2.2")
@simulated
@pytest.mark.parametrize("appends", [1, 3, 20])
def test_rows_appended_by_the_old_writer_between_probe_and_fence_survive(seed: int, appends: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        # It polls too rarely to see the claim while the new one sleeps.
        old = sim.start(appender, "old", role="writer", model=model, count=1000, every_s=1.0, poll="1h")
        sim.run(seconds=3)
        new = sim.start(writer, "new", role="writer", model=model, rounds=5)
        new.freeze_before("put", "/wal/", appends + sim.rng.random())
        sim.run(minutes=10)
        written = [attempt for attempt in model.attempts if attempt.writer == "old"]
        assert len(written) >= appends + 3
        assert isinstance(old.error, FencedError)
        assert new.error is None
        model.check(final_rows(sim))


@pytest.mark.fault("F2.3")
@simulated
def test_rows_flushed_by_the_old_writer_between_probe_and_claim_survive(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.start(appender, "old", role="writer", model=model, count=1000, every_s=0.5, flush="memtable")
        sim.run(seconds=4)
        new = sim.start(writer, "new", role="writer", model=model, rounds=5)
        new.freeze_before("put", "/manifest/", 5 + sim.rng.random() * 10)
        sim.run(minutes=10)
        assert new.error is None
        model.check(final_rows(sim))


@simulated
@pytest.mark.parametrize(
    "fences",
    [
        pytest.param(False, id="fence kept", marks=pytest.mark.fault("F2.5")),
        pytest.param(True, id="fence collected", marks=pytest.mark.fault("F2.6")),
    ],
)
def test_a_frozen_writer_that_wakes_after_its_successor_is_fenced(seed: int, fences: bool) -> None:
    """Its put conflicts with the fence of the successor; without the fence, the stall guard stops the writer."""
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        old = sim.start(appender, "old", role="writer", model=model, count=1000, every_s=1.0)
        old.freeze_before("put", "/wal/", 600, skip=4)
        sim.run(seconds=20)
        sim.start(writer, "new", role="writer", model=model, rounds=40, pause_s=1.0)
        sim.start(eager_collector, "gc", role="gc", rounds=400, fences=fences)
        sim.run(hours=1)
        assert isinstance(old.error, FencedError)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.7")
@simulated
@pytest.mark.parametrize("attributes", [True, False])
def test_a_wal_put_with_a_lost_response_is_not_written_twice(seed: int, attributes: bool) -> None:
    with Simulation(seed, options=SimOptions(attributes=attributes)) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=20)
        process.fail("put", "/wal/", Fault.AFTER, skip=1 + seed % 5)
        sim.run(hours=1)
        # With two-phase creates the record keeps the id of the put.
        is_recognized = attributes or sim.two_phase
        assert (process.error is None) == is_recognized
        assert is_recognized or isinstance(process.error, FencedError)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.8")
@simulated
@pytest.mark.parametrize("attributes", [True, False])
def test_a_fence_with_a_lost_response_does_not_fence_its_own_writer(seed: int, attributes: bool) -> None:
    with Simulation(seed, options=SimOptions(attributes=attributes)) as sim:
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=0, close="none")
        process.fail("put", "/wal/", Fault.AFTER)
        sim.run(hours=1)
        assert process.error is None
        assert wal_ids(sim) == ([1] if attributes or sim.two_phase else [1, 2])
        model.check(final_rows(sim))


@pytest.mark.fault("F2.9")
@simulated
def test_a_wal_put_that_fails_permanently_fails_every_waiter(seed: int) -> None:
    """Every waiter gets the error, and no manifest is written afterwards."""

    async def doomed(process: SimProcess) -> list[ShaleError]:
        errors: list[ShaleError] = []
        once = StoreOptions(retry=RetryPolicy(retries_max=0))
        db = await open_db(process, flush_interval=0, store_options=once)

        async def waiter(number: int) -> None:
            try:
                handle = await db.put(b"%d" % number, b"")
                await handle.durable()
            except ShaleError as error:
                errors.append(error)

        process.fail("put", "/wal/", Fault.BEFORE)
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(waiter, number)
        with pytest.raises(UnavailableError):
            await db.put(b"more", b"")
        with pytest.raises(UnavailableError):
            await db.close()
        return errors

    with Simulation(seed) as sim:
        process = sim.start(doomed, "w", role="writer")
        sim.run(hours=1)
        assert process.error is None
        assert [type(error) for error in process.result] == [UnavailableError] * 5
        assert len(sim.objects("db/manifest/")) == 2
        assert final_rows(sim) == {}


@simulated
@pytest.mark.parametrize(
    "is_killed",
    [
        pytest.param(True, id="killed after an upload", marks=pytest.mark.fault("F2.10")),
        pytest.param(False, id="frozen in an upload", marks=pytest.mark.fault("F2.11")),
    ],
)
def test_l0s_enter_the_manifest_in_order_after_a_kill_or_a_freeze_at_the_upload(seed: int, is_killed: bool) -> None:
    with Simulation(seed, options=SimOptions(slow=0.3, slow_s=5.0)) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.start(eager_collector, "gc", role="gc", rounds=300)
        process = sim.start(
            writer, "w", role="writer", model=model, rounds=60, l0_sst_size_bytes=300, max_unflushed_bytes=9000
        )
        if is_killed:
            process.kill_after("put", "/compacted/", skip=seed % 7)
        else:
            process.freeze_before("put", "/compacted/", 60, skip=seed % 7)
        sim.run(hours=1)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.12")
@simulated
def test_ulids_and_timestamps_stay_in_order_when_the_successor_clock_lags(seed: int) -> None:
    """ULIDs stay in order; writes wait for the clock, but at most ten seconds."""

    async def late(process: SimProcess, *, behind_ms: int) -> str:
        process.clock.skew_ms = -behind_ms
        async with open_db(process, flush_interval=0) as db:
            await db.flush("memtable")
            started = process.clock.monotonic_s()
            try:
                await db.put(b"late", b"")
            except InvalidClockTick:
                assert process.clock.monotonic_s() - started == pytest.approx(10, abs=0.1)
                return "refused"
            assert process.clock.monotonic_s() - started < 10.1
            await db.flush("memtable")
            return "written"

    with Simulation(seed) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        sim.start(writer, "first", role="writer", model=model, rounds=20)
        sim.run(hours=1)
        last_tick = rules.manifests.latest.last_l0_clock_tick
        for lag_ms, outcome in ((3_600_000, "refused"), (3_000, "written")):
            behind_ms = START_MS + int(sim.loop.time() * 1000) - last_tick + lag_ms
            process = sim.start(late, f"{lag_ms} ms", role="writer", behind_ms=behind_ms)
            sim.run(hours=1)
            assert process.result == outcome, process.error


@pytest.mark.slow
@pytest.mark.fault("F2.13")
@simulated
def test_flushes_complete_under_a_storm_of_manifest_conflicts(seed: int) -> None:
    with Simulation(seed) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=60, l0_sst_size_bytes=300)
        for name in ("reader a", "reader b"):
            sim.start(pinner, name, role="reader", pause_s=0.05)
        sim.start(l0_promoter, "compactor", role="compactor", pause_s=0.05)
        sim.run(hours=1)
        assert process.error is None
        views = [view.id for view in rules.manifests.latest.views()]
        assert len(views) == len(set(views))
        model.check(final_rows(sim))


@pytest.mark.fault("F2.14")
@simulated
def test_no_manifest_names_rows_of_a_wal_file_in_flight(seed: int) -> None:
    """While a WAL file is in flight, no manifest may name its rows."""

    async def scenario(process: SimProcess) -> None:
        async with open_db(process, flush_interval=0) as db:
            await db.put(b"k", b"v")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(db.flush, "memtable")
                await anyio.sleep(10)
                assert any(key.startswith("db/compacted/") for key in process.sim.objects())
                assert db.status.manifest.last_l0_seq == 0
            assert db.status.manifest.last_l0_seq == 1

    with Simulation(seed) as sim:
        process = sim.start(scenario, "w", role="writer")
        for _ in range(25):
            process.fail("put", "/wal/", Fault.BEFORE, skip=1)
        sim.run(hours=1)
        assert process.error is None, process.error
        assert final_rows(sim) == {b"k": b"v"}


@pytest.mark.fault("F2.15")
@simulated
@pytest.mark.parametrize("epoch_moves", [True, False])
def test_a_wal_file_that_vanishes_during_replay_is_reported(seed: int, epoch_moves: bool) -> None:
    with Simulation(seed) as sim, pytest.MonkeyPatch.context() as patch:
        # Of a log larger than this, opening keeps the beginning only and reads the rest again.
        patch.setattr(replay, "KEPT_BYTES_MAX", 0)
        model = RowModel()
        files = 0
        while not files:
            # Until one closes with rows that are only in the WAL.  Every file is read once before the claim, and again
            # by the replay.
            sim.start(writer, "first", role="writer", model=model, rounds=10, close="wal", flush_interval=None)
            sim.run(hours=1)
            manifest = decode_manifest(list(sim.objects("db/manifest/").values())[-1])
            files = sum(wal_id > manifest.replay_after_wal_id for wal_id in wal_ids(sim))

        async def vandal(process: SimProcess) -> None:
            if epoch_moves:
                manifests = ManifestStore(process.store, "db", process.env, process.metrics)
                await FenceableManifest.claim(await manifests.load(), WRITER)
            manifest = await ManifestStore(process.store, "db", process.env, process.metrics).try_read_latest()
            assert manifest is not None
            await WalStore(process.store, "db").delete(manifest.value.replay_after_wal_id + 1)

        process = sim.start(writer, "second", role="writer", model=model, rounds=1)
        process.freeze_before("get", "/wal/", 60, skip=files)
        sim.run(seconds=30)
        sim.start(vandal, "vandal", role="writer" if epoch_moves else "gc")
        sim.run(hours=1)
        assert type(process.error) is (FencedError if epoch_moves else WalTruncated)


@pytest.mark.fault("F2.19")
@simulated
def test_a_stray_object_in_the_next_wal_slot_fences_the_writer(seed: int) -> None:
    async def scenario(process: SimProcess) -> None:
        db = await open_db(process, flush_interval=0)
        await (await db.put(b"a", b"1")).durable()
        sim.stored.write(wal_key("db", wal_ids(sim)[-1] + 1), b"x")
        handle = await db.put(b"b", b"2")
        with pytest.raises(FencedError):
            await handle.durable()
        with pytest.raises(FencedError):
            await db.close()
        async with open_db(process, flush_interval=0) as again:
            assert {row.key async for row in again.scan()} == {b"a"}
            await (await again.put(b"c", b"3")).durable()

    with Simulation(seed) as sim:
        process = sim.start(scenario, "w", role="writer")
        sim.run(hours=1)
        assert process.error is None, process.error
        assert final_rows(sim) == {b"a": b"1", b"c": b"3"}


@pytest.mark.fault("F2.20")
@simulated
def test_a_batch_larger_than_every_limit_stays_atomic(seed: int) -> None:
    """One WAL file holds it, and replay returns all of it or nothing."""

    async def scenario(process: SimProcess, model: RowModel) -> None:
        db = await open_db(process, flush_interval=0, l0_sst_size_bytes=100)
        await put(db, model, "w", b"small", b"1")
        seq = await put_pair(db, model, "w", b"v" * 5000)
        await put(db, model, "w", b"small", b"2")
        await db.flush("wal")
        model.durable_through("w", seq)
        process.kill()
        await anyio.sleep(1)

    with Simulation(seed) as sim:
        model = RowModel()
        sim.start(scenario, "w", role="writer", model=model)
        sim.run(hours=1)
        rows = final_rows(sim)
        assert rows[PAIR[0]] == rows[PAIR[1]] == b"v" * 5000
        model.check(rows)


@simulated
def test_waiters_start_no_more_flushes_than_the_interval_allows(seed: int) -> None:
    """A durable write after a pause takes one request; one after the other they share the interval's PUTs."""
    interval_s, seconds = 0.1, 20.0
    waits: list[float] = []

    async def main(process: SimProcess) -> None:
        async with open_db(process, flush_interval=f"{interval_s * 1000:.0f}ms") as db:
            clock = process.env.clock
            begin_s = clock.monotonic_s()
            before = len(wal_ids(sim))
            while (asked_s := clock.monotonic_s()) < begin_s + seconds:
                await (await db.put(b"key", b"value")).durable()
                waits.append(clock.monotonic_s() - asked_s)
                await anyio.sleep(process.rng.choice((0.0, 0.01, 1.0)))
            assert len(wal_ids(sim)) - before <= (clock.monotonic_s() - begin_s) / interval_s + 1

    with Simulation(seed, options=SimOptions(latency_s=0.005)) as sim:
        process = sim.start(main, "writer", role="writer")
        sim.run(minutes=2)
        assert process.error is None
    assert min(waits) < interval_s / 2 < max(waits)
