"""Valid states that break Shale's additional rules, as another implementation or an operator may leave them.

SlateDB schedules overlapping submissions side by side, consumes L0s that are not the oldest, fails a job without
clearing its worker, and splits a key over two SSTs (docs/reference/protocol.md 6.5, 6.9, 6.11).  These processes do so
too.
"""

from collections.abc import Sequence
from dataclasses import replace

from shale.compaction.apply import with_run, without_drained
from shale.compaction.entries import with_entries, with_entry
from shale.format.names import sst_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.compactions_store import COORDINATOR
from shale.protocol.manifest_store import COMPACTOR, WRITER
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.sst.builder import build_sst
from shale.testing.simulation import SimProcess
from shale.types import (
    EVERYTHING,
    Compaction,
    CompactionContext,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    DrainSpec,
    Entry,
    Epoch,
    Manifest,
    RunId,
    Seq,
    Sst,
    SstView,
    Subcompaction,
    TieredSpec,
    Ulid,
    WorkerClaim,
)
from shale_compactor.execution.options import ExecutorOptions
from tests.simulation.compactor.lsm import ONE_AT_A_TIME, OPTIONS, SST, compactions_of, manifests_of, worker
from tests.simulation.world import World

S = CompactionStatus


async def reckless_coordinator(
    process: SimProcess, *, specs: Sequence[CompactionSpec], status: CompactionStatus = S.SCHEDULED
) -> list[Ulid]:
    """Claim the epoch, schedule the given specs, and die; return the ids of the jobs."""
    owner = await Fenceable.claim(await manifests_of(process).load(), COMPACTOR)
    jobs = await Fenceable.claim_epoch(await compactions_of(process).load_or_create(), COORDINATOR, owner.epoch)
    now_ms = process.env.clock.now_ms()
    ids = [process.env.ids.ulid(at_least_ms=now_ms + number) for number in range(len(specs))]
    entries = [Compaction(id=job, spec=spec, status=status) for job, spec in zip(ids, specs, strict=True)]
    await jobs.apply(lambda current: with_entries(current.value, entries))
    return [entry.id for entry in entries]


def start_overlapping_jobs(
    world: World, *, frozen_s: float, executor: ExecutorOptions = OPTIONS.executor
) -> tuple[Ulid, Ulid, SimProcess, SimProcess]:
    """Let ``[3, 2] -> 2`` and ``[2] -> 2`` run together.

    Args:
        world: a database with four runs.
        frozen_s: how long the worker of the first job stands still.
        executor: options of the worker of the second job.

    Returns:
        Both jobs and their workers.
    """
    wide = TieredSpec(sorted_runs=(RunId(3), RunId(2)), destination=RunId(2))
    narrow = TieredSpec(sorted_runs=(RunId(2),), destination=RunId(2))
    boss = world.sim.start(reckless_coordinator, role="compactor", specs=[wide, narrow])
    world.sim.run(minutes=1)
    first, second = boss.result
    fast = world.sim.start(worker, "fast", role="worker", options=ONE_AT_A_TIME)
    world.run_until(lambda: world.has(first, S.RUNNING))
    fast.freeze(frozen_s)
    slow = world.sim.start(worker, "slow", role="worker", options=ONE_AT_A_TIME, executor=executor)
    world.run_until(lambda: world.has(second, S.RUNNING))
    return first, second, fast, slow


async def reckless_commit(process: SimProcess, *, job: Ulid, completed: bool) -> None:
    """Commit one result without checking other jobs; ``completed``: also store it as Completed before dying."""
    owner = await Fenceable.claim(await manifests_of(process).load(), COMPACTOR)
    jobs = await Fenceable.claim_epoch(await compactions_of(process).load_or_create(), COORDINATOR, owner.epoch)
    entry = jobs.value.get(job)
    assert entry is not None
    await create_checkpoint(owner, process.env, lifetime_ms=900_000)
    await owner.apply(lambda current: _applied(current.value, entry))
    if completed:
        done = replace(entry, status=S.COMPLETED, worker=None, ctx=None)
        await jobs.apply(lambda current: with_entry(current.value, done))


def _applied(manifest: Manifest, entry: Compaction) -> Manifest:
    if isinstance(entry.spec, TieredSpec):
        return with_run(manifest, entry.spec, tuple(SstView.identity(sst) for sst in entry.output_ssts))
    return without_drained(manifest, entry.spec)


async def reckless_drain(process: SimProcess, *, spec: DrainSpec) -> None:
    """Drain a segment without checking its jobs, and die."""
    owner = await Fenceable.claim(await manifests_of(process).load(), COMPACTOR)
    await Fenceable.claim_epoch(await compactions_of(process).load_or_create(), COORDINATOR, owner.epoch)
    await create_checkpoint(owner, process.env, lifetime_ms=900_000)
    await owner.apply(lambda current: without_drained(current.value, spec))


async def reckless_failure(process: SimProcess, *, job: Ulid) -> None:
    """Fail a job and leave its worker in the entry."""
    owner = await Fenceable.claim(await manifests_of(process).load(), COMPACTOR)
    jobs = await Fenceable.claim_epoch(await compactions_of(process).load_or_create(), COORDINATOR, owner.epoch)

    def failed(current: Versioned[Compactions]) -> Compactions | None:
        entry = current.value.get(job)
        return None if entry is None else with_entry(current.value, replace(entry, status=S.FAILED))

    await jobs.apply(failed)


async def damaged_epoch(process: SimProcess, *, epoch: int) -> None:
    """Restore an older compactions file, as an operator may do."""
    stored = await compactions_of(process).load_or_create()
    await stored.apply(lambda current: replace(current.value, compactor_epoch=Epoch(epoch)))


async def duplicated_l0(process: SimProcess, *, position: int) -> None:
    """Create a union of shards of one database that lists one of its L0s twice."""
    owner = await Fenceable.claim(await manifests_of(process).load(), WRITER)

    def doubled(current: Versioned[Manifest]) -> Manifest | None:
        l0 = current.value.tree.l0
        if len({view.id for view in l0}) < len(l0):
            return None
        return replace(current.value, tree=replace(current.value.tree, l0=(l0[position], *l0)))

    await owner.apply(doubled)


async def pruning_writer(process: SimProcess, *, segment: bytes) -> None:
    """Write as a writer that finds a drained segment and removes its entry."""
    owner = await Fenceable.claim(await manifests_of(process).load(), WRITER)

    def pruned(current: Versioned[Manifest]) -> Manifest | None:
        tree = current.value.tree_of(segment)
        if tree is None or not tree.is_empty:
            return None
        kept = tuple(each for each in current.value.segments if each.prefix != segment)
        return replace(current.value, segments=kept)

    await owner.apply(pruned)


async def half_done(
    process: SimProcess, *, job: Ulid, rows: Sequence[Entry], cuts: Sequence[int], retention_min_seq: int
) -> None:
    """Act as a worker that writes the first rows of the result, one SST up to each cut, publishes them, and dies.

    A cut may lie inside a key, so that its versions are in two SSTs.
    """
    stored = await compactions_of(process).load()
    outputs = []
    for start, end in zip([0, *cuts], cuts, strict=False):
        data, info = build_sst(rows_from_entries([*rows[start:end]]), SST)
        sst_id = process.env.ids.ulid(job.ms)
        await process.store.put(sst_key("db", sst_id), data)
        outputs.append(Sst(id=sst_id, info=info))
    context = CompactionContext(
        subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=tuple(outputs)),),
        retention_min_seq=Seq(retention_min_seq),
    )
    claim = WorkerClaim(worker_id="foreign", last_heartbeat_ms=process.env.clock.now_ms())

    def running(current: Versioned[Compactions]) -> Compactions | None:
        entry = current.value.get(job)
        if entry is None or entry.status is not S.SCHEDULED:
            return None
        return with_entry(current.value, replace(entry, status=S.RUNNING, worker=claim, ctx=context))

    await stored.apply(running)
