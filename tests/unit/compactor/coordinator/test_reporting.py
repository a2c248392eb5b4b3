"""Log lines and metrics of a coordinator (docs/reference/logs.md, docs/reference/telemetry.md)."""

from dataclasses import replace

import pytest

from shale.errors import InvalidCompaction
from shale.telemetry.metrics import Metrics
from shale.types import DrainSpec, Epoch, WorkerClaim
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.reporting import CoordinatorReporter
from shale_compactor.planning.commit import reject
from shale_compactor.planning.merge_state import MergedState
from shale_compactor.planning.step import PlanningStep, RefusedProposal
from tests.unit.compactor.values import S, compactions, entry, manifest, spec, tree

STATE = manifest(tree((2, 1), (9,)))
STEP = PlanningStep(manifest=STATE, compactions=compactions())
JOB = entry(50, spec((2, 1), to=10), S.RUNNING)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def reporter(metrics):
    return CoordinatorReporter(metrics)


@pytest.fixture
def lines(caplog):
    caplog.set_level("INFO", "shale")

    def heard():
        found = [(record.levelname, record.msg) for record in caplog.records if isinstance(record.msg, dict)]
        caplog.clear()
        return [
            (level, line["event"], {name: line[name] for name in ("rule", "worker", "status") if name in line})
            for level, line in found
        ]

    return heard


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, {"db": "", **labels})


def test_jobs_that_are_taken_back_from_a_worker(reporter, metrics, lines):
    step = replace(STEP, reclaimed=(JOB,))
    taken = compactions(replace(JOB, status=S.SCHEDULED, worker=None))
    reporter.decided(step, taken, 0)
    assert lines() == [("INFO", "compaction.reclaimed", {"worker": "w"})]
    other = compactions(replace(JOB, worker=WorkerClaim(worker_id="x", last_heartbeat_ms=1)))
    reporter.decided(step, other, 0)
    assert len(lines()) == 1
    assert value(metrics, "slatedb_compactor_jobs_reclaimed_total") == 2


def test_an_earlier_heartbeat_keeps_the_job_and_is_not_reported(reporter, metrics, lines):
    alive = compactions(replace(JOB, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=9)))
    reporter.decided(replace(STEP, reclaimed=(JOB,)), alive, 0)
    assert lines() == []
    assert value(metrics, "slatedb_compactor_jobs_reclaimed_total") == 0


def test_commits_and_refusals_of_entries(reporter, metrics, lines):
    step = reject(replace(STEP, committed=(JOB,), proposed=(JOB,)), JOB, InvalidCompaction("V4", "gone"))
    reporter.decided(step, step.compactions, 1_700_000_000_000)
    assert lines() == [
        ("INFO", "compaction.submitted", {}),
        ("INFO", "compaction.committed", {"worker": "w"}),
        ("ERROR", "compaction.rejected", {"rule": "V4"}),
    ]
    assert value(metrics, "slatedb_compactor_last_success_timestamp_seconds") == 1_700_000_000
    labels = {"error_type": "validation", "retryable": "false"}
    assert value(metrics, "slatedb_compaction_errors_total", **labels) == 1


def test_a_policy_that_repeats_a_mistake_is_told_once(reporter, lines):
    wrong, other = (RefusedProposal(spec=spec((n,), to=1), rule="V7", message="V7: …") for n in (2, 3))
    for refused, heard in (((wrong,), 1), ((wrong,), 0), ((wrong, other), 1), ((), 0), ((wrong,), 1)):
        reporter.decided(replace(STEP, refused=refused), compactions(), 0)
        assert lines() == [("ERROR", "compaction.rejected", {"rule": "V7"})] * heard


def test_merged_cancellations_and_ignored_changes_are_logged(reporter, metrics, lines):
    reporter.merged(MergedState(compactions=compactions(), cancelled=(JOB,), ignored=(JOB,)))
    assert lines() == [
        ("INFO", "compaction.cancelled", {}),
        ("ERROR", "compaction.remote.ignored", {"status": "running"}),
    ]
    labels = {"error_type": "validation", "retryable": "false"}
    assert not value(metrics, "slatedb_compaction_errors_total", **labels)


def test_gauges_follow_the_active_jobs(reporter, metrics):
    reporter.leadership_acquired(Epoch(7))
    assert value(metrics, "slatedb_compactor_epoch") == 7
    waiting = entry(51, spec(runs=(9,), to=9), S.COMPACTED)
    reporter.observe(STATE, compactions(JOB, waiting, entry(52, spec((2,), to=1), S.FAILED)))
    assert value(metrics, "slatedb_compactor_inflight_input_bytes") == 300
    assert value(metrics, "slatedb_compaction_phase", phase="commit") == 1
    reporter.observe(STATE, compactions())
    assert value(metrics, "slatedb_compactor_inflight_input_bytes") == 0
    assert value(metrics, "slatedb_compaction_phase", phase="commit") == 0


def test_the_backlog_is_what_no_worker_has_claimed(reporter, metrics):
    waiting = entry(51, spec(runs=(9,), to=9), S.SCHEDULED)
    submitted = entry(52, spec((1,), to=1), S.SUBMITTED)
    drain = entry(53, DrainSpec(segment=b"s", sorted_runs=(9,)), S.SCHEDULED)
    reporter.observe(STATE, compactions(JOB, waiting, submitted, drain))
    assert value(metrics, "slatedb_compactor_backlog_jobs") == 1
    assert value(metrics, "slatedb_compactor_backlog_bytes") == 100
    reporter.observe(STATE, compactions(JOB))
    assert value(metrics, "slatedb_compactor_backlog_jobs") == 0
    assert value(metrics, "slatedb_compactor_backlog_bytes") == 0


def test_the_heartbeat_timeout_is_exported_for_alerts(reporter, metrics):
    reporter.configured(CoordinatorOptions(worker_heartbeat_timeout_s=45))
    assert value(metrics, "slatedb_compactor_worker_heartbeat_timeout_seconds") == 45
