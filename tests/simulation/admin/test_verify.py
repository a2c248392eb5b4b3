"""Verification of a database at work reports no damage: concurrent changes are not damage."""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.admin.verify.report import VerifyReport
from shale.errors import CheckpointMissing, CorruptionError, InvalidClockTick, ShaleError
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.sst.verify.finding import Finding
from shale.sst.verify.sst import VerifyDepth
from shale.store.port import ObjectMeta, ObjectStore
from shale.testing.simulation import SimProcess, Simulation
from tests.simulation.background_actors import pinner
from tests.simulation.clones.harness import cloner, collecting, compacting, done, fill, request, start
from tests.simulation.compactor.lsm import compactor
from tests.simulation.conftest import simulated_slowly
from tests.simulation.row_model import RowModel
from tests.simulation.whole_system import EXPECTED, collector
from tests.simulation.writer.writers import writer


async def checker(
    process: SimProcess,
    found: list[Finding],
    reports: list[VerifyReport],
    *,
    path: str = "db",
    log_elsewhere: bool = False,
    interval_s: float = 20.0,
) -> None:
    """Verify repeatedly, every second time with all rows."""
    wal_store = Below(process.store) if log_elsewhere else None
    checked = VerifyTarget(store=process.store, wal_store=wal_store, root=path, env=process.env)
    while True:
        await anyio.sleep(process.rng.uniform(0, interval_s))
        try:
            report = await verify_database(checked, VerifyOptions(depth=process.rng.choice(list(VerifyDepth))))
        except CorruptionError:
            raise
        except ShaleError:
            continue  # no database yet, or a store that gave up
        found += report.findings
        reports.append(report)


@pytest.mark.slow
@simulated_slowly
def test_verification_beside_all_other_processes_finds_no_damage(seed: int) -> None:
    found, reports = list[Finding](), list[VerifyReport]()
    with Simulation(seed, swarm=True) as sim:
        sim.restart_killed(30.0)
        for number in range(2):
            sim.at(
                number * 200.0,
                lambda name=f"w{number}": sim.start(
                    writer, name, role="writer", model=RowModel(), rounds=60, pause_s=10.0, close="memtable"
                ),
            )
        sim.at(5.0, lambda: sim.start(compactor, "c", role="compactor"))
        # Takes everything that may go at once.
        sim.at(10.0, lambda: sim.start(collector, "gc", role="gc", min_age_s=0.0, interval_s=10.0))
        sim.start(pinner, "a", role="admin", rounds=20, pause_s=30.0)
        for name in ("v1", "v2"):
            sim.start(checker, name, role="admin", found=found, reports=reports)
        sim.run(minutes=10)
        sim.heal()
        sim.run(minutes=2)
        sim.kill_all()
        assert found == []
        assert len(reports) > 5
        sim.check_errors(*EXPECTED, *((InvalidClockTick,) if sim.options.skew_ms else ()))


class Below:
    """A separate store for the WAL: a folder of the simulated store, with the same faults."""

    def __init__(self, store: ObjectStore, folder: str = "logs/") -> None:
        self._store = store
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        """Calls whose first argument is a key."""
        call = getattr(self._store, name)
        if name not in ("get", "get_if_changed", "get_range", "head", "put", "put_stream", "delete"):
            return call
        return lambda key, *rest, **options: call(self._folder + key, *rest, **options)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        failed = await self._store.delete_many([self._folder + key for key in keys])
        return {key.removeprefix(self._folder): error for key, error in failed.items()}

    async def list(self, prefix: str) -> list[ObjectMeta]:
        return [meta async for page in self.list_pages(prefix) for meta in page]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        async for page in self._store.list_pages(self._folder + prefix, after=after and self._folder + after):
            yield [replace(meta, key=meta.key.removeprefix(self._folder)) for meta in page]

    async def aclose(self) -> None:
        """Do nothing: the inner store is shared."""


async def collector_of_both(process: SimProcess) -> None:
    """Run a collector without a minimum age on the main store and on the WAL store."""
    task = TaskOptions(interval_s=10.0, min_age_s=0.0)
    options = GcOptions(manifest=task, wal=task, compacted=task, compactions=task)
    logs: Any = Below(process.store)
    await Collector(process.store, "db", process.env, options, process.metrics, wal_store=logs).run()


@simulated_slowly
def test_nothing_is_reported_of_a_log_in_a_store_of_its_own(seed: int) -> None:
    """Without the WAL store, verification would report every WAL file as missing."""
    found, reports = list[Finding](), list[VerifyReport]()

    async def writer_of_both(process: SimProcess) -> None:
        await writer(process, RowModel(), rounds=60, pause_s=5.0, close="wal", wal_store=Below(process.connection))

    with Simulation(seed) as sim:
        sim.start(writer_of_both, "w0", role="writer")
        sim.at(150.0, lambda: sim.start(writer_of_both, "w1", role="writer"))
        sim.at(5.0, lambda: sim.start(compactor, "c", role="compactor"))
        sim.at(10.0, lambda: sim.start(collector_of_both, "gc", role="gc"))
        sim.start(checker, "v", role="admin", found=found, reports=reports, log_elsewhere=True)
        sim.run(minutes=6)
        sim.kill_all()
        assert found == []
        assert len(reports) > 5
        assert max(report.wal_files for report in reports) > 5
        assert not sim.objects("db/wal/")
        assert sim.objects("logs/db/wal/")


async def filling(process: SimProcess, path: str) -> None:
    """Write the same keys repeatedly."""
    for turn in itertools.count():
        await fill(process, path, {b"%s-%02d" % (path.encode(), key): b"%d" % turn * 20 for key in range(12)})
        await anyio.sleep(process.rng.uniform(0, 20))


async def cloning(process: SimProcess) -> None:
    """Create more clones while the first one detaches."""
    for number in range(4):
        await anyio.sleep(process.rng.uniform(0, 30))
        with suppress(CheckpointMissing):
            await cloner(process, request(f"d{number}", "p"))


async def compacting_all(process: SimProcess, path: str) -> None:
    """Run full compactions at intervals."""
    while True:
        await compacting(process, path, full=True)
        await anyio.sleep(process.rng.uniform(5, 20))


def start_checkers(
    sim: Simulation, found: list[Finding], reports: list[VerifyReport], interval_s: float = 25.0
) -> list[SimProcess]:
    """Verify the parent and two of its clones repeatedly."""
    return [start(sim, checker, found, reports, path=path, interval_s=interval_s) for path in ("p", "c", "d0")]


@pytest.mark.slow
@simulated_slowly
def test_nothing_is_reported_of_clones_that_let_go_of_their_parents(seed: int) -> None:
    """Parents compact borrowed SSTs, clones detach, and collectors delete without a minimum age."""
    found, reports = list[Finding](), list[VerifyReport]()
    with Simulation(seed) as sim:
        done(sim, fill, "p", {b"key-%02d" % key: b"value" * 20 for key in range(24)}, tables=4, role="writer")
        done(sim, cloner, request("c", "p"))
        checkers = start_checkers(sim, found, reports)
        start(sim, cloning)
        busy = [
            start(sim, compacting, "p", role="compactor"),
            start(sim, compacting_all, "c", role="compactor"),
            *(start(sim, filling, path, role="writer") for path in ("p", "c")),
        ]
        for path in ("p", "c"):
            start(sim, collecting, path, role="gc")
        sim.run(minutes=2)
        for process in busy:
            process.kill()
        sim.run(minutes=2)
        # The checkpoints of commits keep what was borrowed for 15 minutes.  Until then next to nothing changes, and
        # most verifications would read the same objects.
        for process in checkers:
            process.kill()
        checkers = start_checkers(sim, found, reports, interval_s=100.0)
        sim.run(minutes=10)
        for process in checkers:
            process.kill()
        start_checkers(sim, found, reports)
        sim.run(minutes=5)
        sim.kill_all()
        assert found == []
        borrowed = {bool(report.borrowed) for report in reports if report.path == "c"}
        assert borrowed == {True, False}, "it has let go"
        assert any(report.path == "d0" and report.borrowed for report in reports)
