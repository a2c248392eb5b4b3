"""Processes of a database with real SSTs: a writer that only flushes, and the real compactor."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from shale.compaction.policies.size_tiered import SizeTiered
from shale.errors import ObjectVersionExists
from shale.format.names import sst_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import COMPACTOR, WRITER, ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.rebase import rebase_writer
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.testing.simulation import SimProcess
from shale.types import (
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Sst,
    SstView,
    Tree,
    Ulid,
    WalId,
)
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.simulation.first_version import load_or_create

if TYPE_CHECKING:
    from shale.protocol.manifest_store import FenceableManifest

ROOT = "db"
SST = SstOptions(block_size_bytes=128, min_filter_keys=4)
SCHEDULER = SizeTiered(min_compaction_sources=3, max_compaction_sources=4)
OPTIONS = CompactorOptions(
    coordinator=CoordinatorOptions(scheduler=SCHEDULER),
    worker=WorkerOptions(persist_every_sst=True),
    executor=ExecutorOptions(sst=SST, max_sst_size_bytes=256, max_subcompactions=2),
    take_over=True,
)

CALM = replace(
    OPTIONS,
    coordinator=CoordinatorOptions(scheduler=SCHEDULER, poll_interval_s=30.0, worker_heartbeat_timeout_s=120.0),
    worker=WorkerOptions(compactions_poll_interval_s=30.0),
)
"""Options for tests of hours of simulated time: each poll costs real time."""

NEVER = SizeTiered(min_compaction_sources=1000, max_compaction_sources=1000)
PASSIVE = replace(OPTIONS, coordinator=CoordinatorOptions(scheduler=NEVER))
"""Options of a coordinator that only schedules submissions."""

ONE_AT_A_TIME = replace(OPTIONS.worker, max_concurrent_compactions=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The rows of one L0.

    Args:
        first_key, keys: the range of keys; few keys, many versions.
        deletes, merges: shares of rows that are tombstones and operands.
        snapshots: whether old versions stay visible to some snapshot.
        every_key: one row for each key in order, instead of a random choice.
        expire_ts: drawn for each value; ``None`` in it is a value for ever.
        clock_tick: the writer's clock at this flush, by which rows expire.
        keep_all: the oldest snapshot stays where it is, so every version has to be kept.
        visible: the L0 shows only these keys, as after a projection.
        segment: which tree, and the prefix of all its keys.
    """

    first_key: int = 0
    keys: int = 8
    deletes: float = 0.3
    merges: float = 0.0
    snapshots: bool = False
    rows_max: int = 6
    every_key: bool = False
    expire_ts: Sequence[int | None] = (None,)
    clock_tick: int = 0
    keep_all: bool = False
    visible: KeyRange | None = None
    segment: bytes = b""

    def rows(self, rng: random.Random, last_seq: int) -> list[Entry]:
        """Return new rows, in the order of an SST."""
        if self.every_key:
            numbers = [*range(self.first_key, self.first_key + self.keys)]
        else:
            numbers = [self.first_key + rng.randrange(self.keys) for _ in range(1 + rng.randrange(self.rows_max))]
        entries = [self._row(rng, number, seq) for seq, number in enumerate(numbers, last_seq + 1)]
        return sorted(entries, key=lambda entry: (entry.key, -entry.seq))

    def _row(self, rng: random.Random, number: int, seq: int) -> Entry:
        key, draw = self.segment + b"key%03d" % number, rng.random()
        if draw < self.deletes:
            return Entry(key, b"", seq, FLAG_TOMBSTONE)
        flags = FLAG_MERGE if draw < self.deletes + self.merges else 0
        expire_ts = rng.choice(self.expire_ts)
        if expire_ts is not None:
            return Entry(key, b"value %d of %s;" % (seq, key), seq, flags | FLAG_EXPIRE_TS, 0, expire_ts)
        return Entry(key, b"value %d of %s;" % (seq, key), seq, flags)


FEW = Load(snapshots=True)
MANY = Load(keys=80, deletes=0.1, rows_max=40)


def manifests_of(process: SimProcess) -> ManifestStore:
    return ManifestStore(process.store, ROOT, process.env, process.metrics, ProtocolOptions(component=process.role))


def compactions_of(process: SimProcess) -> CompactionsStore:
    return CompactionsStore(process.store, ROOT, process.env, process.metrics, ProtocolOptions(component=process.role))


async def claim_as_writer(process: SimProcess) -> "FenceableManifest":
    return await Fenceable.claim(await load_or_create(manifests_of(process), Manifest()), WRITER)


async def writer(
    process: SimProcess, *, flushes: int, pause_s: float = 20.0, load: Load = FEW, loads: Sequence[Load] = ()
) -> None:
    """Flush tables of a few rows to L0, with overwrites and tombstones; ``loads`` replaces the default rows."""
    owner = await claim_as_writer(process)
    for each in loads or [load] * flushes:
        await anyio.sleep(process.rng.uniform(0, pause_s))
        await flush(process, owner, each)


async def flush(process: SimProcess, owner: "FenceableManifest", load: Load = FEW) -> SstView:
    """Flush one L0, with retries after conflicts."""
    local = owner.prepare_dirty().value
    entries = load.rows(process.rng, local.last_l0_seq)
    data, info = build_sst(rows_from_entries(entries), SST)
    sst_id = process.env.ids.ulid(newest_l0_ms(local))
    await process.store.put(sst_key(ROOT, sst_id), data)
    view = SstView(id=sst_id, sst=Sst(id=sst_id, info=info), visible_range=load.visible)
    last_seq = Seq(max(entry.seq for entry in entries))
    oldest_snapshot: int = last_seq
    if load.keep_all:
        oldest_snapshot = local.recent_snapshot_min_seq
    elif load.snapshots:
        oldest_snapshot = process.rng.randint(local.recent_snapshot_min_seq, last_seq)
    local = replace(
        _with_l0(local, load.segment, view),
        last_l0_seq=last_seq,
        recent_snapshot_min_seq=Seq(oldest_snapshot),
        last_l0_clock_tick=max(load.clock_tick, local.last_l0_clock_tick),
        replay_after_wal_id=local.next_wal_sst_id,
        next_wal_sst_id=WalId(local.next_wal_sst_id + 1),
    )
    await commit_as_writer(owner, local)
    return view


async def commit_as_writer(owner: "FenceableManifest", local: Manifest) -> None:
    """Write a writer's local state; it prunes drained segments (docs/reference/protocol.md 3.4)."""
    conflicts = 0
    while True:
        try:
            await owner.update(Versioned(owner.id, local))
        except ObjectVersionExists:
            conflicts += 1
            await owner.recover(conflicts)
            local = rebase_writer(local, owner.value)
        else:
            return


def _with_l0(manifest: Manifest, prefix: bytes, view: SstView) -> Manifest:
    tree = manifest.tree_of(prefix) or Tree()
    tree = replace(tree, l0=(view, *tree.l0))
    if not prefix:
        return replace(manifest, tree=tree)
    others = [segment for segment in manifest.segments if segment.prefix != prefix]
    segments = sorted([*others, Segment(prefix=prefix, tree=tree)], key=lambda segment: segment.prefix)
    return replace(manifest, segments=tuple(segments))


async def l0_promoter(process: SimProcess, *, runs: int, gap: int = 1) -> None:
    """Turn the oldest L0s of the root into runs ``0, gap, 2 gap, …``, by reference; then die as a coordinator."""
    owner = await Fenceable.claim(await manifests_of(process).load(), COMPACTOR)
    for number in range(runs):

        def promoted(current: Versioned[Manifest], number: int = number) -> Manifest | None:
            tree = current.value.tree
            if len(tree.compacted) > number:
                return None
            oldest = tree.l0[-1]
            moved = replace(
                tree,
                l0=tree.l0[:-1],
                compacted=(SortedRun(id=RunId(number * gap), ssts=(oldest,)), *tree.compacted),
                last_compacted_l0_sst_view_id=oldest.id,
                last_compacted_l0_sst_id=oldest.sst.id,
            )
            return replace(current.value, tree=moved)

        await owner.apply(promoted)


async def compactor(
    process: SimProcess, *, options: CompactorOptions = OPTIONS, transforms: Transforms = NO_TRANSFORMS
) -> None:
    """Run a real compactor."""
    whole = Compactor(process.store, ROOT, process.env, options, process.metrics, transforms=transforms)
    await whole.start()
    await whole.run()


async def coordinator(process: SimProcess, *, options: CompactorOptions = OPTIONS) -> None:
    """Run a coordinator without a worker."""
    await compactor(process, options=replace(options, embedded_worker=False))


async def worker(
    process: SimProcess,
    *,
    options: WorkerOptions = OPTIONS.worker,
    executor: ExecutorOptions = OPTIONS.executor,
    transforms: Transforms = NO_TRANSFORMS,
) -> None:
    """Run a separate worker."""
    merging = OneRunOfAJob(process, Executor(process.store, ROOT, process.env, executor, transforms=transforms))
    await Worker(manifests_of(process), compactions_of(process), merging, process.env, options).run()


class OneRunOfAJob(JobExecutor):
    """The real executor, with a check that a worker never runs a job twice concurrently."""

    def __init__(self, process: SimProcess, executor: Executor) -> None:
        self._process = process
        self._executor = executor
        self._active: set[Ulid] = set()

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``."""
        if job.id in self._active:
            error = AssertionError(f"{self._process.name} runs {job.id} twice at the same time")
            self._process.sim.note_failure("two runs of one job", error)
        self._active.add(job.id)
        try:
            return await self._executor.run(job, progress)
        finally:
            self._active.discard(job.id)


async def metadata_collector(process: SimProcess, *, interval_s: float = 60.0, min_age_s: float = 300.0) -> None:
    """Remove expired checkpoints and delete old versions of both kinds, after advancing the boundary."""
    stores = (manifests_of(process), compactions_of(process))
    while True:
        await anyio.sleep(interval_s)
        now_ms = process.env.clock.now_ms()
        stored = await stores[0].load()
        await remove_expired_checkpoints(stored, now_ms)
        pinned = {checkpoint.manifest_id for checkpoint in stored.value.checkpoints}
        for store in stores:
            versions = (await store.list_versions())[:-1]
            kept = pinned if store is stores[0] else set()
            old_ids = [v.id for v in versions if now_ms - v.last_modified_ms > min_age_s * 1000 and v.id not in kept]
            if old_ids:
                await store.advance_boundary(max(old_ids))
                for file_id in old_ids:
                    await store.delete(file_id)
