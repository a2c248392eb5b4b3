"""Databases, clones of them, and what a clone must show."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

import shale
from shale.admin.compactions import CompactionAdmin
from shale.clones.clone import create_clone
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneResult, CloneSource
from shale.compaction.requests import Sources
from shale.errors import ShaleError
from shale.format.manifest import decode_manifest
from shale.garbage.collector import Collector
from shale.garbage.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.testing.history import Mutation
from shale.testing.simulation import SimProcess, Simulation
from shale.types import KeyRange, Manifest
from shale_compactor.process import Compactor
from tests.simulation.lsm import OPTIONS, PASSIVE

Rows = dict[bytes, bytes]
SMALL = {"l0_sst_size_bytes": 2000, "l0_max_ssts": 1000, "l0_max_ssts_per_key": 1000}


def neighbours(process: SimProcess) -> Neighbours:
    return Neighbours(process.store, process.env, process.metrics)


def manifests_of(process: SimProcess, path: str) -> ManifestStore:
    return ManifestStore(process.store, path, process.env, process.metrics, ProtocolOptions(component="admin"))


def opened(process: SimProcess, path: str, **settings: Any) -> Any:
    """A ``Db`` on the process's own way to the store."""
    return shale.Db.open(path, store=process.network, env=process.env, metrics=process.metrics, **{**SMALL, **settings})


async def fill(
    process: SimProcess, path: str, rows: Mapping[bytes, bytes | None], *, tables: int = 3, leave: str = "flushed"
) -> None:
    """Write rows in several L0s.

    Args:
        leave: ``flushed``: nothing is in the WAL alone.  ``wal``: the last table is in WAL files that the manifest
            knows of.  ``crash``: in files that it does not know of.
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
    """Everything that a writer of the database finds."""
    async with opened(process, path, create_if_missing=False) as db:
        return {row.key: row.value async for row in db.scan()}


async def read_rows(process: SimProcess, path: str) -> Rows:
    """Everything that a reader finds, which changes nothing but checkpoints.

    Looked up as well: a scan goes by sequence numbers, a lookup stops at the first tree level that has the key.
    """
    async with shale.DbReader.open(path, store=process.network, env=process.env, metrics=process.metrics) as db:
        rows = {row.key: row.value async for row in db.scan()}
        for key, value in rows.items():
            assert await db.get(key) == value, f"a lookup of {key!r} does not find what a scan does"
        return rows


async def cloner(process: SimProcess, request: CloneRequest) -> CloneResult:
    return await create_clone(neighbours(process), request)


async def patient_cloner(process: SimProcess, request: CloneRequest, pauses_s: Sequence[float]) -> CloneResult:
    """Try again after each pause."""
    for pause_s in pauses_s:
        try:
            return await create_clone(neighbours(process), request)
        except ShaleError:
            await anyio.sleep(pause_s)
    return await create_clone(neighbours(process), request)


async def collecting(process: SimProcess, path: str, *, rounds: int | None = None) -> None:
    """A collector for which everything is old enough; it stays, or ends after some rounds."""
    task = TaskOptions(interval_s=20.0, min_age_s=0.0)
    options = GcOptions(manifest=task, wal=task, compacted=task, compactions=task, detach=task)
    collector = Collector(process.store, path, process.env, options, process.metrics)
    if rounds is None:
        await collector.run()
    for _ in range(rounds or 0):
        await collector.run_once()
        await anyio.sleep(20.0)


async def compacting(process: SimProcess, path: str, *, full: bool = False) -> None:
    """A compactor; with ``full`` it ends once everything is in one run."""
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
    """The result of a process that runs alone and has to succeed."""
    process = start(sim, main, *args, role=role, **options)
    sim.run(hours=3)
    assert process.error is None, process.error
    assert process.has_ended, "it is still at work"
    return process.result


def start(
    sim: Simulation, main: Any, *args: Any, role: str = "admin", name: str | None = None, **options: Any
) -> SimProcess:
    """Start a process whose arguments come in order."""

    async def run(process: SimProcess) -> Any:
        return await main(process, *args, **options)

    return sim.start(run, f"{role}{len(sim.processes)}", role=role)


class ClonePins:
    """Appendix B, 13: whoever borrows SSTs and is initialised is pinned by those that it borrows from.

    And no SST of a database goes that an initialised clone shows.
    """

    def __init__(self, *paths: str) -> None:
        self.paths = paths
        self._decoded: dict[bytes, Manifest] = {}

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Rules``."""
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
                assert pin is not None, f"{mutation}: {path} borrows from {entry.path} without a pin"
                for sst_id in entry.sst_ids:
                    key = f"{entry.path}/compacted/{sst_id}.sst"
                    assert key in sim.memory._objects, f"{mutation}: {path} needs {key}"

    def latest(self, sim: Simulation, path: str) -> Manifest | None:
        """The newest manifest of a database."""
        names = [key for key in sim.memory._objects if key.startswith(f"{path}/manifest/")]
        if not names:
            return None
        data = bytes(sim.memory._objects[max(names)].data)
        if data not in self._decoded:
            self._decoded[data] = decode_manifest(data, path=max(names))
        return self._decoded[data]
