"""Decisions of a new coordinator about inherited jobs (docs/reference/protocol.md 6.4, step 5)."""

from dataclasses import replace

import pytest

from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction, WorkerClaim
from shale_compactor.planning.commit import commit_compacted
from shale_compactor.planning.startup import plan_startup
from tests.unit.compactor.values import S, compactions, entry, manifest, run, spec, sst, statuses, tree

CTX = CompactionContext(subcompactions=(Subcompaction(range=EVERYTHING),), retention_min_seq=Seq(1))
WORKER = WorkerClaim(worker_id="w", last_heartbeat_ms=1)


@pytest.mark.fault("F4.11b")
def test_scheduled_jobs_are_validated_again_and_running_ones_go_on():
    """T6.b: valid jobs stay Scheduled, so that a crash cannot lose their progress."""
    state = manifest(tree((), (4, 3, 2, 1)))
    value = compactions(
        entry(5001, spec(runs=(1,), to=1), S.SCHEDULED, worker=WORKER),
        entry(5002, spec(runs=(2,), to=2), S.RUNNING),
        entry(5003, spec(runs=(3,), to=3), S.COMPACTED, output_ssts=(sst(5004),)),
        entry(5005, spec(runs=(4,), to=4), S.COMPLETED),
    )
    step = plan_startup(state, value)
    assert statuses(step.compactions) == {
        5001: S.SCHEDULED,
        5002: S.RUNNING,
        5003: S.COMPACTED,
        5005: S.COMPLETED,
    }
    assert step.compactions.entries[0].worker is None
    assert step.manifest is state


def test_progress_survives_a_restart_unless_its_runs_were_rebuilt():
    state = manifest(replace(tree(), compacted=(run(2, ms=4000), run(1, ms=6000))))
    value = compactions(
        entry(5000, spec(runs=(2,), to=2), S.SCHEDULED, ctx=CTX),
        entry(5001, spec(runs=(1,), to=1), S.SCHEDULED, ctx=CTX),
        entry(5002, spec(runs=(2,), to=2), S.SUBMITTED, ctx=CTX),
    )
    assert [found.ctx for found in plan_startup(state, value).compactions.entries] == [CTX, None, CTX]


def test_jobs_of_a_worker_that_ended_with_its_writer_are_free_at_once():
    """They keep their progress; those of other workers go on."""
    other = WorkerClaim(worker_id="other", last_heartbeat_ms=1)
    value = compactions(
        entry(5001, spec(runs=(2,), to=2), S.RUNNING, worker=WORKER, ctx=CTX),
        entry(5002, spec(runs=(1,), to=1), S.RUNNING, worker=other),
    )
    step = plan_startup(manifest(tree((), (2, 1))), value, ("gone", "w"))
    freed, kept = step.compactions.entries
    assert (freed.status, freed.worker, freed.ctx) == (S.SCHEDULED, None, CTX)
    assert kept == value.entries[1]
    assert step.reclaimed == value.entries[:1]


def test_of_two_scheduled_rivals_the_older_stays():
    """SlateDB schedules both when an administrator submits them together."""
    value = compactions(
        entry(5000, spec(runs=(2, 1), to=1), S.SCHEDULED), entry(5001, spec(runs=(1,), to=1), S.SCHEDULED)
    )
    step = plan_startup(manifest(tree((), (2, 1))), value)
    assert statuses(step.compactions) == {5000: S.SCHEDULED, 5001: S.FAILED}
    assert [(rejection.entry.id.ms, rejection.rule) for rejection in step.rejected] == [(5001, "V12")]


def test_a_run_that_rose_in_another_tree_since_is_no_reason_to_fail():
    """V5 compares with all trees when a job is submitted, and with its own tree after it was scheduled."""
    state = manifest(tree((2, 1)), s=tree((), (7,)))
    value = compactions(entry(5000, spec((2, 1), to=6), S.SCHEDULED, ctx=CTX))
    (kept,) = plan_startup(state, value).compactions.entries
    assert (kept.status, kept.ctx) == (S.SCHEDULED, CTX)


@pytest.mark.fault("F4.9")
def test_a_committed_result_is_completed_without_the_manifest():
    waiting = entry(5000, spec((2, 1), to=0), S.COMPACTED, output_ssts=(sst(5001),))
    after = commit_compacted(manifest(tree((2, 1))), compactions(waiting)).manifest
    assert statuses(plan_startup(after, compactions(waiting)).compactions) == {5000: S.COMPLETED}


@pytest.mark.fault("F4.9b")
def test_jobs_on_a_run_that_was_rebuilt_fail():
    """``[3, 2] -> 2`` is in the manifest, the inherited ``[2] -> 2`` read the old run 2."""
    first = entry(5000, spec(runs=(3, 2), to=2), S.COMPACTED, output_ssts=(sst(5005),))
    stale = entry(5001, spec(runs=(2,), to=2), S.RUNNING)
    after = commit_compacted(manifest(tree((), (3, 2))), compactions(first)).manifest
    step = plan_startup(after, compactions(first, stale))
    assert statuses(step.compactions) == {5000: S.COMPLETED, 5001: S.FAILED}
    forgotten = compactions(replace(first, status=S.COMPLETED), stale)
    assert statuses(plan_startup(after, forgotten).compactions) == {5000: S.COMPLETED, 5001: S.FAILED}


def test_a_run_that_is_older_than_the_job_is_no_reason_to_fail():
    state = manifest(replace(tree(), compacted=(run(2, ms=5000),)))
    value = compactions(entry(5000, spec(runs=(2,), to=2), S.RUNNING))
    assert plan_startup(state, value).rejected == ()
