"""Processes that write, clone, compact and collect databases, and the invariants of clones."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

import shale
from shale.admin.compactions import CompactionAdmin
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneResult, CloneSource
from shale.compaction.requests import Sources
from shale.errors import ShaleError
from shale.format.manifest import decode_manifest
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.testing.mutation_log import Mutation
from shale.testing.simulation import SimProcess, Simulation
from shale.types import KeyRange, Manifest
from shale_compactor.compactor import Compactor
from tests.simulation.compactor.lsm import OPTIONS, PASSIVE

Rows = dict[bytes, bytes]
SMALL = {"l0_sst_size_bytes": 2000, "l0_max_ssts": 1000, "l0_max_ssts_per_key": 1000}


def catalog_of(process: SimProcess) -> DatabaseCatalog:
    return DatabaseCatalog(process.store, process.env, process.metrics)


def manifests_of(process: SimProcess, path: str) -> ManifestStore:
    return ManifestStore(process.store, path, process.env, process.metrics, ProtocolOptions(component="admin"))


def opened(process: SimProcess, path: str, **settings: Any) -> Any:
    """Open a ``Db`` over the network of the process."""
    return shale.Db.open(path, store=process.connection, env=process.env, metrics=process.metrics, **SMALL | settings)


async def fill(
    process: SimProcess, path: str, rows: Mapping[bytes, bytes | None], *, tables: int = 3, leave: str = "flushed"
) -> None:
    """Write rows to several L0s.

    Args:
        leave: state of the last table: ``flushed``: in L0.  ``wal``: only in WAL files that the manifest knows.
            ``crash``: only in WAL files that it does not know.
    """
    async with opened(process, path) as db:
        items = [*rows.items()]
        step = max(1, -(-len(items) // tables))
        for start in range(0, len(items), step):
            for key, value in items[start : start + step]:
                await (db.delete(key) if value is None else db.put(key, value))
            await db.flush("wal")
            is_last = start + step >= len(items)
            if not is_last or leave == "flushed":
                await db.flush("memtable")
        if leave == "crash":
            process.kill()
            await anyio.sleep_forever()
        await db.close("wal")


async def rows_of(process: SimProcess, path: str) -> Rows:
    """Return all rows that a writer finds."""
    async with opened(process, path, create_if_missing=False) as db:
        return {row.key: row.value async for row in db.scan()}


async def read_rows(process: SimProcess, path: str) -> Rows:
    """Return all rows that a reader finds, which writes only checkpoints.

    Each key is also looked up: a scan compares sequence numbers, a lookup stops at the first source with the key.
    """
    place = {"store": process.connection, "env": process.env, "metrics": process.metrics}
    async with shale.DbReader.open(path, **place, open_timeout=None) as db:
        rows = {row.key: row.value async for row in db.scan()}
        for key, value in rows.items():
            assert await db.get(key) == value, f"a lookup of {key!r} differs from the scan"
        return rows


async def cloner(process: SimProcess, request: CloneRequest) -> CloneResult:
    return await create_clone(catalog_of(process), request)


async def patient_cloner(process: SimProcess, request: CloneRequest, pauses_s: Sequence[float]) -> CloneResult:
    """Try again after each pause."""
    for pause_s in pauses_s:
        try:
            return await create_clone(catalog_of(process), request)
        except ShaleError:
            await anyio.sleep(pause_s)
    return await create_clone(catalog_of(process), request)


async def collecting(process: SimProcess, path: str, *, rounds: int | None = None) -> None:
    """Run a collector with a minimum age of 0, without end or for some rounds."""
    task = TaskOptions(interval_s=20.0, min_age_s=0.0)
    options = GcOptions(manifest=task, wal=task, compacted=task, compactions=task, detach=task)
    collector = Collector(process.store, path, process.env, options, process.metrics)
    if rounds is None:
        await collector.run()
    for _ in range(rounds or 0):
        await collector.run_once()
        await anyio.sleep(20.0)


async def compacting(process: SimProcess, path: str, *, full: bool = False) -> None:
    """Run a compactor; with ``full``, until all rows are in one run."""
    options = PASSIVE if full else OPTIONS
    compactor = Compactor(process.store, path, process.env, options, process.metrics)
    await compactor.start()
    if not full:
        await compactor.run()
        return
    admin = CompactionAdmin(process.store, path, process.env, process.metrics)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        tree = (await manifests_of(process, path).read_latest()).value.tree
        everything = Sources(
            l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=tuple(run.id for run in tree.compacted)
        )
        (job,) = await admin.submit(everything)
        assert (await admin.wait(job.id)).error is None
        tasks.cancel_scope.cancel()


def request(path: str, *sources: str | CloneSource, **options: Any) -> CloneRequest:
    named = tuple(CloneSource(path=each) if isinstance(each, str) else each for each in sources)
    return CloneRequest(path=path, sources=named, **options)


def half(path: str, start: bytes | None, end: bytes | None, **fields: Any) -> CloneSource:
    return CloneSource(path=path, keys=KeyRange.half_open(start, end), **fields)


def done(sim: Simulation, main: Any, *args: Any, role: str = "admin", **options: Any) -> Any:
    """Return the result of a process that runs alone and must succeed."""
    process = start(sim, main, *args, role=role, **options)
    sim.run(hours=3)
    assert process.error is None, process.error
    assert process.has_ended, "it is still running"
    return process.result


def start(
    sim: Simulation, main: Any, *args: Any, role: str = "admin", name: str | None = None, **options: Any
) -> SimProcess:
    """Start a process with positional arguments."""

    async def run(process: SimProcess) -> Any:
        return await main(process, *args, **options)

    return sim.start(run, f"{role}{len(sim.processes)}", role=role)


class ClonePins:
    """Appendix B, 13: each database that an initialized clone borrows from holds the clone's checkpoint.

    No SST that an initialized clone references is deleted.
    """

    def __init__(self, *paths: str) -> None:
        self.paths = paths
        self._decoded: dict[bytes, Manifest] = {}

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        if "/manifest/" not in mutation.key and mutation.op != "delete":
            return
        latest = {path: manifest for path in self.paths if (manifest := self.latest(sim, path)) is not None}
        for path, manifest in latest.items():
            if not manifest.initialized:
                continue
            for entry in manifest.external_dbs:
                if not entry.sst_ids or entry.path not in latest:
                    continue
                assert entry.final_checkpoint_id is not None
                pin = latest[entry.path].checkpoint(entry.final_checkpoint_id)
                assert pin is not None, f"{mutation}: {path} borrows from {entry.path} without a checkpoint"
                for sst_id in entry.sst_ids:
                    key = f"{entry.path}/compacted/{sst_id}.sst"
                    assert key in sim.stored, f"{mutation}: {path} needs {key}"

    def latest(self, sim: Simulation, path: str) -> Manifest | None:
        """Return the newest manifest of a database."""
        names = [key for key in sim.stored if key.startswith(f"{path}/manifest/")]
        if not names:
            return None
        data = sim.stored[max(names)]
        if data not in self._decoded:
            self._decoded[data] = decode_manifest(data, path=max(names))
        return self._decoded[data]
