"""Commits of results to the manifest (docs/reference/protocol.md 6.8, 6.10), and the rejection of stale results."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.types import EVERYTHING, CompactionContext, ExternalDb, KeyRange, Seq, SstView, Subcompaction, WorkerClaim
from shale_compactor.planning.admission import admit_submitted, plan_trivial_move
from shale_compactor.planning.commit import commit_compacted, is_committed
from tests.unit.compactor.values import (
    S,
    compactions,
    drain,
    entry,
    manifest,
    spec,
    sst,
    statuses,
    tree,
    ulid,
    view,
)

WORKER = WorkerClaim(worker_id="w", last_heartbeat_ms=1)


def compacted(ms, what, *outputs):
    return entry(ms, what, S.COMPACTED, output_ssts=tuple(sst(output) for output in outputs), worker=WORKER)


def shape(state, prefix=b""):
    """Return L0s by time, and runs as id -> times of their SSTs."""
    found = state.tree_of(prefix)
    return [view.sst.id.ms for view in found.l0], {run.id: [v.sst.id.ms for v in run.ssts] for run in found.compacted}


def test_l0s_become_a_run_and_newer_l0s_stay():
    """T6.f."""
    state = manifest(tree((6, 5, 4, 3, 2, 1)))
    step = commit_compacted(state, compactions(compacted(50, spec((4, 3, 2, 1), to=0), 51, 52)))
    assert shape(step.manifest) == ([6, 5], {0: [51, 52]})
    assert step.manifest.tree.last_compacted_l0_sst_view_id == ulid(4)
    assert step.manifest.tree.last_compacted_l0_sst_id == ulid(4)
    assert statuses(step.compactions) == {50: S.COMPLETED}
    (done,) = step.compactions.entries
    assert done.worker is None
    (output,) = step.manifest.tree.compacted
    assert output.ssts == (SstView.identity(sst(51)), SstView.identity(sst(52)))


@pytest.mark.parametrize(
    ("what", "runs"),
    [
        pytest.param(spec(runs=(4, 3), to=3), {5: [1005], 3: [51], 2: [1002], 1: [1001]}, id="in the middle"),
        pytest.param(spec(runs=(2, 1), to=1), {5: [1005], 4: [1004], 3: [1003], 1: [51]}, id="at the end"),
        pytest.param(spec(runs=(3,), to=3), {5: [1005], 4: [1004], 3: [51], 2: [1002], 1: [1001]}, id="a rewrite"),
    ],
)
def test_the_output_takes_the_place_of_the_oldest_source(what, runs):
    state = manifest(tree((), (5, 4, 3, 2, 1)))
    step = commit_compacted(state, compactions(compacted(50, what, 51)))
    assert shape(step.manifest) == ([], runs)
    assert list(shape(step.manifest)[1]) == sorted(runs, reverse=True)
    assert step.manifest.tree.last_compacted_l0_sst_view_id is None


def test_l0s_and_runs_merge_into_the_oldest_run():
    state = manifest(tree((2, 1), (7, 5)))
    step = commit_compacted(state, compactions(compacted(50, spec((2, 1), (7,), to=7), 51)))
    assert shape(step.manifest) == ([], {7: [51], 5: [1005]})


def test_a_result_without_rows_leaves_an_empty_run():
    state = manifest(tree((), (2, 1)))
    step = commit_compacted(state, compactions(compacted(50, spec(runs=(2, 1), to=1))))
    assert shape(step.manifest) == ([], {1: []})


def test_a_segment_keeps_its_entry_when_a_drain_empties_it():
    state = manifest(s=tree((3, 2), (1,)))
    value = compactions(entry(50, drain(b"s", (3, 2), (1,))))
    step = admit_submitted(state, value, trivial_moves=False)
    assert shape(step.manifest, b"s") == ([], {})
    assert step.manifest.segments[0].tree.last_compacted_l0_sst_view_id == ulid(3)
    assert statuses(step.compactions) == {50: S.COMPLETED}


@pytest.mark.fault("F4.14")
def test_a_result_whose_sources_are_gone_fails():
    """Also after the crash between the two writes, as SlateDB sees it."""
    value = compactions(compacted(50, spec((2, 1), to=3, segment=b"gone"), 51), compacted(52, spec((9,), to=4), 53))
    state = manifest(tree((2, 1)))
    step = commit_compacted(state, value)
    assert step.manifest is state
    assert [(rejection.entry.id.ms, rejection.rule) for rejection in step.rejected] == [(50, "V3"), (52, "V4")]


@pytest.mark.fault("F4.9")
def test_a_committed_result_is_recognised_and_not_applied_again():
    """The coordinator died between the manifest and the compactions."""
    waiting = compacted(50, spec((4, 3, 2, 1), to=0), 51, 52)
    after = commit_compacted(manifest(tree((4, 3, 2, 1))), compactions(waiting)).manifest
    step = commit_compacted(after, compactions(waiting))
    assert step.manifest is after
    assert statuses(step.compactions) == {50: S.COMPLETED}


def test_a_rewrite_is_recognised_by_its_outputs():
    waiting = compacted(50, spec(runs=(2,), to=2), 51)
    before = manifest(tree((), (2,)))
    assert not is_committed(before, waiting)
    assert is_committed(commit_compacted(before, compactions(waiting)).manifest, waiting)


@pytest.mark.fault("F4.12")
@pytest.mark.parametrize("status", [S.SCHEDULED, S.RUNNING, S.COMPACTED])
def test_the_sweep_fails_entries_that_share_a_source_or_the_destination(status):
    """``[2] -> 2`` must not replace the run 2 that ``[3, 2] -> 2`` has just built."""
    ctx = CompactionContext(subcompactions=(Subcompaction(range=EVERYTHING),), retention_min_seq=Seq(1))
    first = compacted(50, spec(runs=(3, 2), to=2), 60)
    stale = replace(compacted(51, spec(runs=(2,), to=2), 61), status=status, worker=WORKER, ctx=ctx)
    neighbour = entry(52, spec(runs=(1,), to=1), S.RUNNING)
    admin = entry(53, spec(runs=(2,), to=2))
    state = manifest(tree((), (3, 2, 1)))
    step = commit_compacted(state, compactions(first, stale, neighbour, admin))
    assert shape(step.manifest) == ([], {2: [60], 1: [1001]})
    assert statuses(step.compactions) == {50: S.COMPLETED, 51: S.FAILED, 52: S.RUNNING, 53: S.SUBMITTED}
    failed = step.compactions.get(ulid(51))
    assert (failed.worker, failed.ctx) == (None, None)


def test_submitted_entries_are_validated_in_the_order_of_their_ids():
    state = manifest(tree((), (1, 0)))
    value = compactions(entry(50, spec(runs=(1, 0), to=0)), entry(51, spec(runs=(0,), to=0)))
    step = admit_submitted(state, value, trivial_moves=False)
    assert statuses(step.compactions) == {50: S.SCHEDULED, 51: S.FAILED}
    assert [entry.id.ms for entry in step.scheduled] == [50]


def test_scheduling_forgets_the_progress_of_an_earlier_life():
    ctx = CompactionContext(subcompactions=(Subcompaction(range=EVERYTHING),), retention_min_seq=Seq(1))
    value = compactions(entry(50, spec(runs=(0,), to=0), ctx=ctx, worker=WORKER))
    (scheduled,) = admit_submitted(manifest(tree((), (0,))), value, trivial_moves=False).compactions.entries
    assert (scheduled.status, scheduled.ctx, scheduled.worker) == (S.SCHEDULED, None, None)


@pytest.mark.fault("F4.25")
def test_a_trivial_move_keeps_the_views_and_their_ids():
    left, right = view(1, keys=(b"a", b"c")), view(2, keys=(b"d", b"f"))
    state = manifest(replace(tree(), l0=(right, left)))
    value = compactions(entry(50, spec((2, 1), to=0)))
    step = admit_submitted(state, value, trivial_moves=True)
    assert step.manifest.tree.compacted[0].ssts == (left, right)
    assert step.manifest.tree.l0 == ()
    assert statuses(step.compactions) == {50: S.COMPLETED}


def test_overlapping_views_do_not_move():
    assert plan_trivial_move((view(1, keys=(b"a", b"c")), view(2, keys=(b"c", b"f")))) is None
    touching = (
        view(1, keys=(b"a", b"z"), visible=KeyRange.half_open(None, b"m")),
        view(2, keys=(b"a", b"z"), visible=KeyRange.half_open(b"m", None)),
    )
    assert plan_trivial_move(touching[::-1]) == touching


def test_external_ids_of_consumed_ssts_are_pruned():
    external = ExternalDb(path="parent", source_checkpoint_id=UUID(int=1), sst_ids=(ulid(1), ulid(1002)))
    state = replace(manifest(tree((1,), (2,))), external_dbs=(external,))
    step = commit_compacted(state, compactions(compacted(50, spec((1,), to=3), 51)))
    assert step.manifest.external_dbs == (replace(external, sst_ids=(ulid(1002),)),)
