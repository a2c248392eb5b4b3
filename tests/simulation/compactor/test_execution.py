"""What a job writes, and how another worker resumes it.

Source: docs/reference/protocol.md 16.4.
"""

import random
from dataclasses import replace

import pytest

from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.types import CompactionStatus, Entry, KeyRange, RunId, TieredSpec, Ulid
from shale_compactor.execution.transforms import Transforms
from tests.simulation.compactor.foreign import half_done
from tests.simulation.compactor.lsm import MANY, OPTIONS, PASSIVE, Load, compactor, coordinator, worker, writer
from tests.simulation.compactor.retention_model import Keeping
from tests.simulation.compactor.submissions import all_l0, full_compaction, submitted
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

S = CompactionStatus
SMALL_SSTS = replace(OPTIONS.executor, max_sst_size_bytes=128)
LARGE_SSTS = replace(OPTIONS.executor, max_sst_size_bytes=4096, max_subcompactions=1)
MOVING = replace(PASSIVE, coordinator=replace(PASSIVE.coordinator, enable_trivial_move=True))


def scheduled_job(sim: Simulation, world: World) -> Ulid:
    """Return a job over all L0s, submitted to a coordinator that has no worker."""
    sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
    world.run_until(lambda: world.compactions.compactor_epoch > 0)
    (job,) = submitted(sim, [all_l0(world.manifest)])
    world.run_until(lambda: world.has(job, S.SCHEDULED))
    return job


def inputs_of(world: World, sim: Simulation) -> list[Entry]:
    """Return every row of the root tree, also those that its last compaction will drop."""
    return world.rows.rows_of(sim, world.manifest.tree.views())


def cut_places(chance: random.Random, rows: list[Entry]) -> list[int]:
    """Return the ends of the SSTs that a dead worker published, mostly inside a key."""
    inside = [place for place in range(1, len(rows)) if rows[place - 1].key == rows[place].key]
    if chance.random() < 0.2:
        return []
    places = {chance.randint(1, len(rows)) for _ in range(chance.choice((0, 1, 2)))}
    if inside and chance.random() < 0.7:
        places |= {chance.choice(inside), chance.choice(inside)}
    if chance.random() < 0.1:
        places.add(len(rows))
    return sorted(places)


@pytest.mark.fault("F4.15")
@row("a key spans two SSTs", "resumed inside a key", "everything was written", "nothing was written")
def test_a_job_resumed_inside_one_key_keeps_every_version_once(seed: int, reached: CoverageMarks) -> None:
    """A foreign worker cut keys with many versions anywhere: every version exists exactly once, in order."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        load = Load(keys=chance.choice((1, 2, 5)), rows_max=30, deletes=0.2, keep_all=chance.random() < 0.8)
        world = World(sim).filled(3, load)
        job = scheduled_job(sim, world)
        barrier = world.manifest.recent_snapshot_min_seq
        wanted = Keeping(min_seq=barrier, drop_tombstones=True).rows(inputs_of(world, sim))
        if not wanted:
            return
        cuts = cut_places(chance, wanted)
        dead = sim.start(half_done, role="worker", job=job, rows=wanted, cuts=cuts, retention_min_seq=barrier)
        sim.run(seconds=3)
        assert dead.error is None
        assert world.has(job, S.RUNNING)
        sim.start(worker, "heir", role="worker", executor=chance.choice((SMALL_SSTS, LARGE_SSTS)))
        world.run_until(lambda: not world.has(job, S.RUNNING, S.SCHEDULED, S.COMPACTED))
        assert world.outcome(job) is S.COMPLETED
        assert world.rows_of_run(0) == wanted
        split = [cut for cut in cuts if cut < len(wanted) and wanted[cut - 1].key == wanted[cut].key]
        reached("a key spans two SSTs", when=any(cut in split for cut in cuts[:-1]))
        reached("resumed inside a key", when=bool(cuts) and cuts[-1] in split)
        reached("everything was written", when=bool(cuts) and cuts[-1] == len(wanted))
        reached("nothing was written", when=not cuts)
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.16")
@row("several ranges were resumed", "one range was resumed", "killed", "stopped")
def test_a_worker_with_other_options_resumes_the_planned_ranges(seed: int, reached: CoverageMarks) -> None:
    """A worker with other sizes and plans keeps the ranges of the first plan and its finished outputs."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, MANY)
        job = scheduled_job(sim, world)
        barrier = world.manifest.recent_snapshot_min_seq
        wanted = Keeping(min_seq=barrier, drop_tombstones=True).rows(inputs_of(world, sim))
        kinds = [replace(SMALL_SSTS, max_subcompactions=chance.choice((2, 3, 4))), LARGE_SSTS]
        chance.shuffle(kinds)
        first = sim.start(worker, "first", role="worker", executor=kinds[0])
        sluggish(first, 1.2)
        first.network.hook(HookPoint.BEFORE, "put", "/compacted/", first.kill, skip=1 + chance.randrange(6))
        sim.start(worker, "heir", role="worker", executor=kinds[1]).freeze(9.0)
        world.run_until(lambda: not world.has(job, S.RUNNING, S.SCHEDULED, S.COMPACTED))
        assert world.outcome(job) is S.COMPLETED
        assert world.rows_of_run(0) == wanted
        plans = [entry.ctx for entry in world.versions_of(job) if entry.ctx is not None]
        resumed = len(world.owners()[job]) > 1 and any(sub.output_ssts for plan in plans for sub in plan.subcompactions)
        reached("several ranges were resumed", when=resumed and len(plans[-1].subcompactions) > 1)
        reached("one range was resumed", when=resumed and len(plans[-1].subcompactions) == 1)
        reached("killed", when=first.is_killed)
        reached("stopped", when=not first.is_killed)
        assert_no_sst_crosses_a_boundary(world, [sub.range for sub in plans[-1].subcompactions] if plans else [])
        world.conclude(PASSIVE)


def assert_no_sst_crosses_a_boundary(world: World, ranges: list[KeyRange]) -> None:
    """Check that the outputs respect the plan of the first worker."""
    for view in world.manifest.tree.compacted[0].ssts:
        first, last = view.sst.info.first_entry, view.sst.info.last_entry
        assert first is not None
        assert last is not None
        assert not ranges or any(keys.contains(first) and keys.contains(last) for keys in ranges)


def sluggish(process: SimProcess, seconds: float) -> None:
    """Delay each output, so that a heartbeat follows it."""
    for number in range(60):
        process.network.hook(HookPoint.BEFORE, "put", "/compacted/", lambda: process.freeze(seconds), skip=number)


@pytest.mark.fault("F4.17")
@row("the barrier moved while a plan existed", "rows that only the old barrier keeps")
def test_a_resumed_job_keeps_the_snapshot_barrier_of_its_plan(seed: int, reached: CoverageMarks) -> None:
    """The successor uses the barrier of the plan, not that of the newest manifest."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(3, Load(keys=6, rows_max=40, deletes=0.1, keep_all=True))
        job = scheduled_job(sim, world)
        rows, barrier = inputs_of(world, sim), world.manifest.recent_snapshot_min_seq
        first = sim.start(worker, "first", role="worker", executor=SMALL_SSTS)
        sluggish(first, 1.2)
        world.run_until(lambda: any(entry.ctx for entry in world.compactions.entries), why="no plan was published")
        first.network.hook(HookPoint.BEFORE, "put", "/compacted/", first.kill, skip=chance.randrange(3))
        moving = sim.start(writer, "moving", role="writer", flushes=1, pause_s=0.5, load=Load(keys=6))
        sim.run(seconds=3, until=lambda: moving.has_ended)
        sim.start(worker, "heir", role="worker", executor=SMALL_SSTS)
        world.run_until(lambda: not world.has(job, S.RUNNING, S.SCHEDULED, S.COMPACTED))
        assert world.outcome(job) is S.COMPLETED
        wanted = Keeping(min_seq=barrier, drop_tombstones=True).rows(rows)
        assert world.rows_of_run(0) == wanted
        moved = world.manifest.recent_snapshot_min_seq
        resumed = first.is_killed and len(world.owners()[job]) > 1
        reached("the barrier moved while a plan existed", when=resumed and moved > barrier)
        fewer = Keeping(min_seq=moved, drop_tombstones=True).rows(rows)
        reached("rows that only the old barrier keeps", when=resumed and len(fewer) < len(wanted))
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.18")
@row("into the last run", "above the last run", "L0s into an empty tree", "ids with gaps", "all of it")
def test_tombstones_are_dropped_only_where_nothing_older_exists(seed: int, reached: CoverageMarks) -> None:
    """Merges above the last run keep them, a merge into it drops them.  The load has many deletes and few keys."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        layers, gap = chance.choice((0, 3, 4, 5)), chance.choice((1, 7))
        world = World(sim).filled(layers + 2, Load(keys=5, deletes=0.6, snapshots=chance.random() < 0.3))
        if layers:
            world.layered(layers, gap=gap)
        sim.start(compactor, "boss", role="compactor", options=PASSIVE)
        sim.run(seconds=2)
        spec = some_window(chance, world)
        tree, barrier = world.manifest.tree, world.manifest.recent_snapshot_min_seq
        views = [view for view in tree.l0 if view.id in spec.l0_view_ids]
        views += [view for run in tree.compacted if run.id in spec.sorted_runs for view in run.ssts]
        is_last = not tree.compacted or tree.compacted[-1].id == spec.destination
        wanted = Keeping(min_seq=barrier, drop_tombstones=is_last).rows(world.rows.rows_of(sim, views))
        (job,) = submitted(sim, [spec])
        world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED))
        assert world.outcome(job) is S.COMPLETED
        assert world.rows_of_run(spec.destination) == wanted
        reached("into the last run", when=is_last and bool(layers))
        reached("above the last run", when=not is_last)
        reached("L0s into an empty tree", when=not layers)
        reached("ids with gaps", when=bool(layers) and gap > 1)
        full = sim.start(full_compaction, role="admin")
        sim.run(minutes=1, until=lambda: full.has_ended)
        world.run_until(lambda: S.COMPACTED in world.path_of(full.result) and not world.any_in(S.COMPACTED))
        assert len(world.manifest.tree.compacted) == 1
        reached("all of it")
        world.conclude(PASSIVE)


def some_window(chance: random.Random, world: World) -> TieredSpec:
    """Return a window of the order of all sources that satisfies V7, V10 and V11."""
    tree = world.manifest.tree
    l0, runs = [view.id for view in tree.l0], [run.id for run in tree.compacted]
    if not runs or chance.random() < 0.2:
        fresh = max(runs, default=RunId(-1)) + 1
        return TieredSpec(l0_view_ids=tuple(l0[chance.randrange(len(l0)) :]), destination=RunId(fresh))
    start, end = sorted(chance.sample(range(len(runs) + 1), 2))
    with_l0 = start == 0 and chance.random() < 0.5
    chosen = runs[start:end]
    l0_ids = tuple(l0[chance.randrange(len(l0)) :]) if with_l0 else ()
    return TieredSpec(l0_view_ids=l0_ids, sorted_runs=tuple(chosen), destination=chosen[-1])


@pytest.mark.fault("F4.19")
@row("a value at the tick", "an operand at the tick", "one tick later", "one that never expires")
def test_rows_expire_at_their_tick(seed: int, reached: CoverageMarks) -> None:
    """``expire == tick`` has expired, ``tick + 1`` has not; an expired value does not uncover older versions."""
    chance = random.Random(seed)
    tick = chance.choice((0, 1000, 2**40))
    with Simulation(seed) as sim:
        expiries = (tick - 1, tick, tick, tick + 1, None)
        load = Load(keys=5, rows_max=20, deletes=0.1, merges=0.3, expire_ts=expiries, snapshots=chance.random() < 0.5)
        world = World(sim).filled(0, loads=[load, load, load, replace(load, clock_tick=tick)])
        rows, barrier = inputs_of(world, sim), world.manifest.recent_snapshot_min_seq
        job = scheduled_job(sim, world)
        sim.start(worker, "hand", role="worker", executor=chance.choice((SMALL_SSTS, LARGE_SSTS)))
        world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED))
        wanted = Keeping(min_seq=barrier, now_tick=tick, drop_tombstones=True).rows(rows)
        assert world.rows_of_run(0) == wanted
        at_tick = [entry for entry in rows if entry.expire_ts == tick and not entry.is_tombstone and entry.flags & 2]
        reached("a value at the tick", when=any(not entry.is_merge for entry in at_tick))
        reached("an operand at the tick", when=any(entry.is_merge for entry in at_tick))
        reached("one tick later", when=any(entry.expire_ts == tick + 1 for entry in wanted))
        reached("one that never expires", when=any(not entry.is_tombstone and not entry.flags & 2 for entry in wanted))
        world.conclude(PASSIVE)


def concatenate(_key: bytes, existing: bytes | None, operands: list[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


@pytest.mark.fault("F4.20")
@row("operands were passed through", "the job was refused and released", "operands were folded")
def test_a_worker_without_the_merge_operator_loses_no_operand(seed: int, reached: CoverageMarks) -> None:
    """It keeps all operands, or fails the job and releases it to a worker with the operator.  No row is lost."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, Load(keys=4, rows_max=12, deletes=0.1, merges=0.6, snapshots=True))
        job = scheduled_job(sim, world)
        rows, barrier = inputs_of(world, sim), world.manifest.recent_snapshot_min_seq
        kept = Keeping(min_seq=barrier, drop_tombstones=True).rows(rows)
        # An operand under a newer value is dropped unseen.
        has_operands = any(entry.is_merge for entry in kept)
        if chance.random() < 0.4:
            sim.start(worker, "plain", role="worker")
            world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED))
            assert world.rows_of_run(0) == kept
            reached("operands were passed through", when=has_operands)
        else:
            strict = Transforms(merge_passthrough=False)
            plain = sim.start(worker, "plain", role="worker", transforms=strict)
            sim.run(minutes=3)
            assert plain.error is None
            reached("the job was refused and released", when=world.path_of(job).count(S.RUNNING) > 1)
            assert not has_operands or not world.has(job, S.COMPLETED, S.FAILED, S.COMPACTED)
            plain.kill()
            sim.start(worker, "able", role="worker", transforms=Transforms(operator=concatenate, operator_name="c"))
            world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED), minutes=20)
            left = [entry for entry in world.rows_of_run(0) if entry.seq <= barrier]
            assert len({entry.key for entry in left}) == len(left), "operands below the barrier are folded"
            reached("operands were folded", when=has_operands)
        assert world.outcome(job) is S.COMPLETED
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.25")
@row("moved", "ranges that touch at a boundary", "rewritten because a key is shared")
def test_ssts_with_disjoint_ranges_are_moved_without_a_rewrite(seed: int, reached: CoverageMarks) -> None:
    """Disjoint views become one run in key order without a rewrite; views that share a key are merged."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        how = chance.choice(("moved", "touch", "share"))
        loads = touching_loads(how)
        chance.shuffle(loads)
        world = World(sim).filled(0, loads=loads)
        before = {view.sst.id for view in world.manifest.tree.l0}
        sim.start(coordinator, "boss", role="compactor", options=MOVING)
        sim.run(seconds=2)
        (job,) = submitted(sim, [all_l0(world.manifest)])
        sim.start(worker, "hand", role="worker")
        world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED))
        assert world.outcome(job) is S.COMPLETED
        after = {view.sst.id for view in world.manifest.tree.compacted[0].ssts}
        rows = world.rows_of_run(0)
        assert [entry.key for entry in rows] == sorted(entry.key for entry in rows)
        assert (after == before) == (how != "share")
        assert (world.path_of(job) == [S.SUBMITTED, S.COMPLETED]) == (how != "share")
        reached("moved", when=how == "moved")
        reached("ranges that touch at a boundary", when=how == "touch")
        reached("rewritten because a key is shared", when=how == "share")
        world.conclude(MOVING)


def touching_loads(how: str) -> list[Load]:
    """Return three tables of adjacent keys: disjoint, cut at a common boundary, or with one key in common."""
    whole = Load(every_key=True, deletes=0.0, keys=12)
    if how == "touch":
        lower, upper = KeyRange.half_open(None, b"key005"), KeyRange.half_open(b"key005", None)
        return [replace(whole, visible=lower), replace(whole, visible=upper), replace(whole, first_key=12)]
    keys = 5 if how == "share" else 4
    return [replace(whole, first_key=first, keys=keys) for first in (0, 4, 8)]
