"""Writers that are standbys of each other, under faults, and without any connection but the store.

Source: docs/reference/protocol.md 16.2.
"""

from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest

from shale.engine.db import Db
from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.options import DbOptions, FlushType
from shale.engine.wal.prefetch import WalPrefetch
from shale.errors import FencedError, InvalidClockTick, ShaleError
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochTaken
from shale.protocol.wal_store import WalStore
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from shale.types import Manifest
from shale.types.writer_sign import WriterStatus, challenged_epoch
from shale_writer.standby.claim import claim
from shale_writer.standby.decision import Reason, StandbyPolicy
from shale_writer.standby.warm import WarmWal
from shale_writer.standby.watch import Standby
from tests.simulation.conftest import simulated_slowly
from tests.simulation.row_model import RowModel
from tests.simulation.writer.writers import final_rows, put

WAL_CACHE_BYTES = 2_000
"""So little that it fills: replay then reads the rest from the store."""
POLICY = StandbyPolicy(poll_interval_s=2.0, takeover_after_s=9.0)
OPTIONS = DbOptions(
    l0_sst_size_bytes=1500, max_unflushed_bytes=40_000, l0_max_ssts=1000, l0_max_ssts_per_key=1000,
    compactor=False, gc=False,
)  # fmt: skip


@dataclass
class Roles:
    """Who is the writer, and who was, with the reason."""

    active: dict[str, SimProcess] = field(default_factory=dict)
    takeovers: list[tuple[str, int, Reason]] = field(default_factory=list)

    def running(self) -> list[str]:
        """Return the lives that hold the role and whose process runs."""
        return [life for life, process in self.active.items() if process.is_running]

    def answering(self) -> list[str]:
        """Return those that would answer a request now."""
        return [life for life in self.running() if not self.active[life].is_suspended]


def newest_manifest(standby: Standby) -> Manifest | None:
    return standby.manifest


async def member(process: SimProcess, roles: Roles, model: RowModel, *, reachable: bool = False) -> None:
    """Wait, take over, write until fenced, and wait again, as a daemon that is restarted does."""
    stores = DatabaseLocation(process.connection, "db").connect(process.env, process.metrics, component="writer")
    database = DatabaseLocation(process.connection, "db").connected(stores)

    async def probe(active: WriterStatus) -> bool:
        return reachable and any(life.endswith(f"/{active.epoch}") for life in roles.answering())

    while True:
        standby = Standby(
            database, process.env, process.metrics, policy=POLICY, protocol=ProtocolOptions(), probe=probe
        )
        prefetch = WalPrefetch(WalStore(stores.main, "db"), process.env, bytes_max=WAL_CACHE_BYTES)
        warm = WarmWal(prefetch, partial(newest_manifest, standby), POLICY.poll_interval_s, process.metrics)
        try:
            async with warm.running():
                takeover = await standby.wait()
                rows = await warm.take()
            writer = await claim(database, OPTIONS, process.env, process.metrics, takeover, wal_rows=rows)
        except EpochTaken:
            continue
        except FencedError:
            await anyio.sleep(1.0)
            continue
        db = Db(writer, DatabaseStores(stores.main, None, ()))
        life = f"{process.name}/{db.status.writer_epoch}"
        roles.takeovers.append((life, takeover.epoch, takeover.reason))
        roles.active[life] = process
        try:
            await _write(process, db, model, life)
        except (FencedError, InvalidClockTick):
            pass
        finally:
            roles.active.pop(life, None)
        await anyio.sleep(20.0)  # until the orchestrator starts it again


async def _write(process: SimProcess, db: Db, model: RowModel, life: str) -> None:
    """Write until the writer fails; sometimes stop cleanly."""
    rng = process.rng
    try:
        for number in range(rng.choice((40, 10_000))):
            await put(db, model, life, b"key-%d" % rng.randrange(12), b"%s/%d" % (life.encode(), number))
            if rng.random() < 0.3:
                await db.flush(rng.choice((FlushType.WAL, FlushType.MEMTABLE)))
            await anyio.sleep(rng.uniform(0, 3.0))
            model.durable_through(life, db.status.durable_seq)
        last = db.status.last_seq
        await db.close(FlushType.WAL)
        model.durable_through(life, last)
    except ShaleError:
        model.durable_through(life, db.status.durable_seq)
        await _end(db)
        raise


async def _end(db: Db) -> None:
    try:
        await db.close(FlushType.NONE)
    except ShaleError:
        return


def started(sim: Simulation, names: str, roles: Roles, model: RowModel, **options: bool) -> list[SimProcess]:
    return [sim.start(member, name, role="writer", roles=roles, model=model, **options) for name in names]


@pytest.mark.fault("F2.30")
@simulated_slowly
def test_under_faults_no_row_is_lost_and_one_is_active_in_the_end(seed: int) -> None:
    with Simulation(seed, swarm=True) as sim:
        sim.watch(DatabaseInvariants("db"))
        roles, model = Roles(), RowModel()
        sim.restart_killed(30.0)
        started(sim, "abc", roles, model, reachable=seed % 2 == 0)
        sim.run(minutes=3)
        sim.heal()
        sim.run(minutes=1)
        assert len(roles.running()) <= 1, roles.running()
        before = len(roles.takeovers)
        sim.run(minutes=3, until=lambda: len(roles.running()) == 1)
        assert len(roles.running()) == 1, roles.takeovers
        silent = [reason for _, _, reason in roles.takeovers[before:] if reason is not Reason.CLOSED]
        assert len(silent) <= 1, f"they replace each other without a fault: {roles.takeovers}"
        sim.kill_all()
        model.check(final_rows(sim))
        epochs = [int(life.rpartition("/")[2]) for life, _, _ in roles.takeovers]
        assert sorted(set(epochs)) == sorted(epochs), "two writers of one epoch"


@pytest.mark.fault("F2.31")
@simulated_slowly
def test_a_writer_that_answers_challenges_is_not_replaced(seed: int) -> None:
    """Nothing but the store connects them; clocks differ by minutes."""
    with Simulation(seed, options=SimOptions(latency_s=0.05, skew_ms=120_000)) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        roles, model = Roles(), RowModel()
        started(sim, "a", roles, model)
        sim.run(seconds=10)
        started(sim, "bc", roles, model)
        sim.run(seconds=40)
        assert [epoch for _, epoch, reason in roles.takeovers if reason is Reason.SILENT] == []
        challenges = [
            entry
            for manifest in rules.manifests.versions.values()
            for entry in manifest.checkpoints
            if challenged_epoch(entry.name) is not None
        ]
        assert challenges, "it was never asked"
        assert len([e for e in rules.manifests.latest.checkpoints if challenged_epoch(e.name) is not None]) <= 2


@pytest.mark.fault("F2.32")
@simulated_slowly
def test_a_frozen_writer_is_replaced_by_one_standby_and_fenced_when_it_wakes(seed: int) -> None:
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        sim.watch(DatabaseInvariants("db"))
        roles, model = Roles(), RowModel()
        (first,) = started(sim, "a", roles, model)
        sim.run(seconds=20)
        started(sim, "bc", roles, model, reachable=True)
        sim.run(seconds=5)
        count = len(roles.takeovers)
        first.freeze(600.0)
        sim.run(seconds=25)
        assert len(roles.takeovers) == count + 1, roles.takeovers
        assert roles.takeovers[-1][2] is Reason.SILENT
        sim.heal()
        sim.run(minutes=1)
        assert len(roles.running()) <= 1
        sim.kill_all()
        model.check(final_rows(sim))
