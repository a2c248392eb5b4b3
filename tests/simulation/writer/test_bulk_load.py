"""Bulk loads beside all other processes, under all faults: each load is atomic, and no other row is lost."""

import anyio

from shale.engine.load.target import ExistingDatabase, LoadTarget, NewDatabase
from shale.engine.write.clean_close import require_clean_close
from shale.errors import FencedError, InvalidDbState, LatestRecordMissing, UnavailableError
from shale.format.names import sst_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from shale.types import FLAG_CREATE_TS, Entry, Sst
from tests.simulation.background_actors import eager_collector, l0_promoter, pinner, start_some_background_actors
from tests.simulation.compactor.lsm import compactor
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.row_model import RowModel
from tests.simulation.whole_system import collector
from tests.simulation.writer.writers import PAIR, final_rows, wal_ids, writer

GIVEN_UP = (FencedError, InvalidDbState, UnavailableError)


async def opened(process: SimProcess, *, fence: bool) -> LoadTarget:
    """Open a target for a load, and create the database if there is none."""
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    if await manifests.try_read_latest() is None:
        return await NewDatabase.open(process.store, "db", process.env, process.metrics)
    return await ExistingDatabase.open(process.store, "db", process.env, process.metrics, fence=fence)


async def loader(
    process: SimProcess, model: RowModel, *, rounds: int = 4, pause_s: float = 20.0, fence: bool = True
) -> None:
    """Load a few rows in a few SSTs repeatedly; continue after any error that ends one load."""
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        try:
            target = await opened(process, fence=fence)
        except GIVEN_UP:
            continue
        try:
            await load(process, model, target, pause_s)
        except GIVEN_UP:
            pass
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(60):
                await close(target)


async def close(target: LoadTarget) -> None:
    """Close the writer; a writer that was fenced meanwhile finds out here."""
    try:
        await target.close()
    except GIVEN_UP:
        return


async def load(process: SimProcess, model: RowModel, target: LoadTarget, pause_s: float) -> None:
    """Run one load with a pair of rows in two SSTs, which are always visible together."""
    rng, stamp = process.rng, target.stamp
    name = f"{process.name}/{stamp.seq}/{rng.getrandbits(32)}"
    value = name.encode()
    keys = sorted({*PAIR, *(b"key-%d" % rng.randrange(12) for _ in range(4))})
    cut = keys.index(PAIR[1])
    ssts = []
    for part in (keys[:cut], keys[cut:]):
        entries = [Entry(key, value, stamp.seq, FLAG_CREATE_TS, stamp.create_ts) for key in part]
        data, info = build_sst(rows_from_entries(entries), SstOptions(min_filter_keys=1))
        sst = Sst(id=process.env.ids.ulid(stamp.not_before_ms), info=info)
        await process.store.put(sst_key("db", sst.id), data)
        ssts.append(sst)
        await anyio.sleep(rng.uniform(0, pause_s))
    for key in keys:
        model.attempt(name, key, value).seq = stamp.seq
    await target.commit(ssts)
    model.durable_through(name, stamp.seq)


@simulated
def test_loads_beside_all_other_processes_are_atomic(seed: int) -> None:
    with Simulation(seed, swarm=True) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.restart_killed(30.0)
        for number in range(sim.rng.randint(1, 2)):
            sim.at(
                sim.rng.uniform(0, 60),
                lambda name=f"l{number}": sim.start(loader, name, role="writer", model=model),
            )
        for number in range(sim.rng.randint(0, 2)):
            sim.at(
                sim.rng.uniform(0, 60),
                lambda name=f"w{number}": sim.start(
                    writer, name, role="writer", model=model, close=sim.rng.choice(("memtable", "wal", "none"))
                ),
            )
        start_some_background_actors(sim)
        sim.run(hours=4)
        model.check(final_rows(sim))


@simulated_slowly
def test_an_eager_collector_never_takes_what_a_slow_load_has_uploaded(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.start(writer, "before", role="writer", model=model, rounds=20)
        sim.run(minutes=10)
        sim.start(l0_promoter, "c", role="compactor", rounds=600, pause_s=10.0)
        sim.start(eager_collector, "gc", role="gc", rounds=600, pause_s=10.0)
        slow = sim.start(loader, "load", role="writer", model=model, rounds=3, pause_s=900.0)
        sim.run(hours=2)
        assert slow.error is None
        model.check(final_rows(sim))
        assert any(attempt.writer.startswith("load/") and attempt.told.name == "DURABLE" for attempt in model.attempts)


@simulated_slowly
def test_the_daemons_compact_and_collect_what_was_loaded(seed: int) -> None:
    with Simulation(seed, swarm=True) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.restart_killed(30.0)
        sim.start(loader, "l", role="writer", model=model, rounds=12, pause_s=20.0)
        sim.at(sim.rng.uniform(90, 300), lambda: sim.start(compactor, "c", role="compactor"))
        sim.at(sim.rng.uniform(1, 60), lambda: sim.start(collector, "gc", role="gc", min_age_s=300.0))
        sim.run(minutes=20)
        sim.heal()
        sim.run(minutes=5)
        sim.kill_all()
        model.check(final_rows(sim))


@simulated_slowly
def test_a_load_without_fence_never_ends_a_writer(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        busy = sim.start(writer, "w", role="writer", model=model, rounds=60, pause_s=sim.rng.choice((1.0, 20.0)))
        sim.at(1, lambda: sim.start(loader, "load", role="writer", model=model, rounds=25, pause_s=40.0, fence=False))
        sim.run(hours=2)
        assert busy.error is None
        model.check(final_rows(sim))


async def look(process: SimProcess) -> bool:
    """Return whether there was a writer that is known to have closed."""
    manifests = ManifestStore(process.store, "db", process.env, process.metrics)
    try:
        stored = await manifests.load()
    except LatestRecordMissing:
        return False
    files = WalStore(process.store, "db")
    try:
        await require_clean_close(stored, await files.last_seen_wal_id(stored.value.replay_after_wal_id))
    except InvalidDbState:
        return False
    return stored.value.writer_epoch > 0


@simulated_slowly
def test_a_writer_that_is_known_to_have_closed_writes_nothing_more(seed: int) -> None:
    """The check runs during a life under faults; after a clean close it succeeds."""
    with Simulation(seed, swarm=True) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        close = sim.rng.choice(("memtable", "wal"))
        alive = sim.start(writer, "w", role="writer", model=RowModel(), rounds=40, pause_s=5.0, close=close)
        sim.start(pinner, "r", role="reader", rounds=60, pause_s=5.0)
        closed_with: list[int] | None = None
        for _ in range(80):
            sim.run(seconds=3)
            looking = sim.start(look, role="admin")
            sim.run(seconds=2)
            if closed_with is None and looking not in sim.running and looking.error is None and looking.result:
                closed_with = wal_ids(sim)
        sim.heal()
        sim.run(minutes=10)
        assert closed_with in (None, wal_ids(sim))
        looking = sim.start(look, role="admin")
        sim.run(minutes=1)
        if alive.has_ended and alive.error is None:
            assert looking.result
