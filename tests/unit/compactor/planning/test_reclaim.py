"""Timeouts of workers are measured on the coordinator's clock (docs/reference/protocol.md 6.6, step 2)."""

from dataclasses import replace

from shale.types import WorkerClaim
from shale_compactor.planning.reclaim import observe_heartbeats, plan_reclaim
from tests.unit.compactor.values import S, compactions, entry, manifest, spec, statuses, tree

STATE = manifest(tree((), (2, 1)))
JOB = entry(5, spec(runs=(2, 1), to=1), S.RUNNING, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=7))


def reclaim(value, seen, now_s):
    return plan_reclaim(STATE, value, seen, now_s=now_s, timeout_s=30)


def test_a_silent_worker_loses_its_job_after_the_timeout_and_not_before():
    value = compactions(JOB)
    seen = observe_heartbeats({}, value, 100.0)
    assert reclaim(value, observe_heartbeats(seen, value, 130.0), 130.0).reclaimed == ()
    plan = reclaim(value, observe_heartbeats(seen, value, 130.1), 130.1)
    assert plan.reclaimed == (JOB,)
    (entry_,) = plan.compactions.entries
    assert (entry_.status, entry_.worker, entry_.ctx) == (S.SCHEDULED, None, JOB.ctx)


def test_a_heartbeat_from_a_slow_clock_counts_as_life():
    """The worker's clock stands at 1970; only the change matters."""
    seen = observe_heartbeats({}, compactions(JOB), 100.0)
    later = compactions(replace(JOB, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=8)))
    seen = observe_heartbeats(seen, later, 125.0)
    assert reclaim(later, seen, 150.0).reclaimed == ()
    assert reclaim(later, seen, 155.5).reclaimed != ()


def test_a_running_job_without_worker_is_taken_back_at_once():
    orphan = replace(JOB, worker=None)
    value = compactions(orphan)
    assert reclaim(value, observe_heartbeats({}, value, 0.0), 0.0).reclaimed == (orphan,)


def test_jobs_whose_sources_are_gone_fail():
    gone = [entry(6, spec(runs=(9,), to=9), S.SCHEDULED), entry(7, spec((1,), to=9, segment=b"x"), S.RUNNING)]
    value = compactions(JOB, *gone, entry(8, spec(runs=(9,), to=9)))
    plan = reclaim(value, observe_heartbeats({}, value, 0.0), 0.0)
    assert [(rejected.entry.id.ms, rejected.rule) for rejected in plan.rejected] == [(6, "V4"), (7, "V3")]
    assert statuses(plan.compactions) == {5: S.RUNNING, 6: S.FAILED, 7: S.FAILED, 8: S.SUBMITTED}


def test_unwatched_time_does_not_count_as_silence():
    value = compactions(JOB)
    seen = observe_heartbeats(observe_heartbeats({}, value, 100.0), value, 109.0)
    seen = observe_heartbeats(seen, value, 200.0, unwatched_s=85.0)
    assert reclaim(value, seen, 200.0).reclaimed == ()
    assert reclaim(value, observe_heartbeats(seen, value, 216.0), 216.0).reclaimed == (JOB,)
