"""Processes of a database around a collector, which keep the protocol's order of uploads and commits.

There are no rows, and SSTs have a few bytes.  ``DatabaseInvariants`` checks after each mutation that all required
objects exist.
"""

from dataclasses import dataclass, replace
from typing import Any

import anyio

from shale.errors import LatestRecordMissing, ObjectVersionExists
from shale.format.names import sst_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.store.port import OVERWRITE
from shale.testing.simulation import SimProcess, Simulation
from shale.types import (
    Checkpoint,
    Compaction,
    Compactions,
    CompactionStatus,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    TieredSpec,
    Ulid,
    WalId,
    WorkerClaim,
)

ROOT = "db"
RUNNING, COMPLETED = CompactionStatus.RUNNING, CompactionStatus.COMPLETED


def manifests_of(process: SimProcess) -> ManifestStore:
    options = ProtocolOptions(component="writer" if process.role == "writer" else "compactor")
    return ManifestStore(process.store, ROOT, process.env, process.metrics, options)


def compactions_of(process: SimProcess) -> CompactionsStore:
    options = ProtocolOptions(component="compactor")
    return CompactionsStore(process.store, ROOT, process.env, process.metrics, options)


async def load_or_create(manifests: ManifestStore) -> Stored[Manifest]:
    while True:
        try:
            return await manifests.load()
        except LatestRecordMissing:
            try:
                return await manifests.create_new(Manifest())
            except ObjectVersionExists:
                continue


async def load_existing(manifests: ManifestStore) -> Stored[Manifest]:
    while True:
        try:
            return await manifests.load()
        except LatestRecordMissing:
            await anyio.sleep(1)


async def upload(process: SimProcess, sst_id: Ulid) -> SstView:
    """Write an SST and return its view."""
    await process.store.put(sst_key(ROOT, sst_id), b"sst", mode=OVERWRITE)
    info = SstInfo(first_entry=b"a", last_entry=b"z", index_offset=10, index_len=10)
    return SstView.identity(Sst(id=sst_id, info=info))


async def flushing_writer(process: SimProcess, *, rounds: int, pause_s: float, publish_s: float = 1.0) -> None:
    """Repeat: write a WAL file, upload an L0, pause, commit the manifest."""
    stored = await load_or_create(manifests_of(process))
    wal = WalStore(process.store, ROOT)
    last_ms = 0
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        wal_id = WalId(stored.value.next_wal_sst_id)
        await wal.put_or_raise_fenced(wal_id, b"rows")
        sst_id = process.env.ids.ulid(at_least_ms=last_ms)
        last_ms = sst_id.ms
        view = await upload(process, sst_id)
        await anyio.sleep(process.rng.uniform(0, publish_s))

        def publish(current: Versioned[Manifest], view: SstView = view, wal_id: WalId = wal_id) -> Manifest | None:
            value = current.value
            if value.next_wal_sst_id > wal_id:
                return None
            return replace(
                value,
                tree=replace(value.tree, l0=(view, *value.tree.l0)),
                replay_after_wal_id=wal_id,
                next_wal_sst_id=WalId(wal_id + 1),
                last_l0_seq=Seq(wal_id),
                recent_snapshot_min_seq=Seq(wal_id),
            )

        await stored.apply(publish)


async def merging_compactor(
    process: SimProcess, *, pause_s: float, work_s: float, id_ahead_ms: int = 0, rounds: int = 10**6
) -> None:
    """Repeat: record a job, upload outputs, create a checkpoint, commit the manifest, complete the job.

    Args:
        id_ahead_ms: how far the id of the first job is in the future, as if submitted by a host with a fast clock.
    """
    stored = await load_existing(manifests_of(process))
    jobs = await compactions_of(process).load_or_create()
    done = 0
    while done < rounds:
        await anyio.sleep(process.rng.uniform(0, pause_s))
        base = await stored.refresh()
        tree = base.value.tree
        if len(tree.l0) < 2:
            continue
        sources = tree.l0[-process.rng.randint(2, len(tree.l0)) :]
        now_ms = process.env.clock.now_ms()
        job_id = process.env.ids.ulid(at_least_ms=now_ms + id_ahead_ms if not done else 0)
        spec = TieredSpec(
            l0_view_ids=tuple(view.id for view in sources),
            sorted_runs=tuple(run.id for run in tree.compacted),
            destination=tree.compacted[-1].id if tree.compacted else RunId(0),
        )
        job = Compaction(id=job_id, spec=spec, status=RUNNING, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=1))
        await jobs.apply(lambda current, job=job: _recorded(current.value, job))
        outputs = []
        for _ in range(process.rng.randint(1, 3)):
            await anyio.sleep(process.rng.uniform(0, work_s))
            outputs.append(await upload(process, process.env.ids.ulid(at_least_ms=job_id.ms)))
        await anyio.sleep(process.rng.uniform(0, work_s))
        await _commit(process, stored, spec, tuple(outputs))
        await jobs.apply(lambda current, job=job: _completed(current.value, job.id))
        done += 1


def _recorded(value: Compactions, job: Compaction) -> Compactions | None:
    if value.get(job.id) is not None:
        return None
    finished = [entry for entry in value.entries if not entry.is_active][-1:]
    entries = sorted((*finished, *(entry for entry in value.entries if entry.is_active), job), key=lambda e: e.id)
    return replace(value, entries=tuple(entries))


def _completed(value: Compactions, job_id: Ulid) -> Compactions | None:
    entry = value.get(job_id)
    if entry is None or not entry.is_active:
        return None
    done = replace(entry, status=COMPLETED, worker=None)
    return replace(value, entries=tuple(done if each.id == job_id else each for each in value.entries))


async def _commit(
    process: SimProcess, stored: Stored[Manifest], spec: TieredSpec, outputs: tuple[SstView, ...]
) -> None:
    """Replace the inputs while a checkpoint protects them; create another one if it has expired meanwhile."""
    is_done = False
    while not is_done:
        pin = await create_checkpoint(stored, process.env, lifetime_ms=900_000)

        def replace_inputs(current: Versioned[Manifest], pin: Checkpoint = pin) -> Manifest | None:
            nonlocal is_done
            kept = tuple(view for view in current.value.tree.l0 if view.id not in spec.l0_view_ids)
            is_done = len(kept) == len(current.value.tree.l0)
            if is_done or current.value.checkpoint(pin.id) is None:
                return None
            is_done = True
            return _with_run(current.value, spec, kept, outputs)

        await stored.apply(replace_inputs)


def _with_run(
    manifest: Manifest, spec: TieredSpec, kept: tuple[SstView, ...], outputs: tuple[SstView, ...]
) -> Manifest:
    runs = tuple(run for run in manifest.tree.compacted if run.id not in spec.sorted_runs)
    output = SortedRun(id=spec.destination, ssts=outputs)
    tree = replace(manifest.tree, l0=kept, compacted=(*runs, output), last_compacted_l0_sst_view_id=spec.l0_view_ids[0])
    return replace(manifest, tree=tree)


async def checkpointing_admin(process: SimProcess, *, rounds: int, pause_s: float) -> None:
    """Create checkpoints of the current state, most of which expire."""
    stored = await load_existing(manifests_of(process))
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        lifetime_ms = process.rng.choice((None, 60_000, 600_000, 3_600_000))
        await create_checkpoint(stored, process.env, lifetime_ms=lifetime_ms)


async def collector(process: SimProcess, *, options: GcOptions) -> None:
    """Run a real collector once the database exists."""
    await load_existing(manifests_of(process))
    await Collector(process.store, ROOT, process.env, options, process.metrics).run()


async def collect_once(process: SimProcess, *, options: GcOptions, at_s: float = 0.0) -> None:
    """Run one pass of each task, at ``at_s`` of simulated time or later."""
    await anyio.sleep(max(0.0, at_s - process.sim.loop.time()))
    await Collector(process.store, ROOT, process.env, options, process.metrics).run_once()


def quick(*, min_age_s: float = 0.0, interval_s: float = 60.0, dry_run: bool = False, **other: Any) -> GcOptions:
    """Return options with all tasks except the one for fences, with the same limits."""
    task = TaskOptions(interval_s=interval_s, min_age_s=min_age_s, dry_run=dry_run)
    tasks = {name.value: task for name in Task if name is not Task.WAL_FENCE}
    return GcOptions(**tasks, **other)


@dataclass(frozen=True)
class Work:
    """Parameters of the processes of the database."""

    rounds: int = 12
    pause_s: float = 20.0
    publish_s: float = 10.0
    work_s: float = 20.0
    id_ahead_ms: int = 0


def start_work(sim: Simulation, work: Work) -> list[SimProcess]:
    """Start writer, compactor and admin."""
    return [
        sim.start(flushing_writer, role="writer", rounds=work.rounds, pause_s=work.pause_s, publish_s=work.publish_s),
        sim.start(
            merging_compactor,
            role="compactor",
            pause_s=work.pause_s,
            work_s=work.work_s,
            rounds=work.rounds // 2,
            id_ahead_ms=work.id_ahead_ms,
        ),
        sim.start(checkpointing_admin, role="admin", rounds=work.rounds // 4, pause_s=4 * work.pause_s),
    ]
