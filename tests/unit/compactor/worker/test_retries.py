"""When a worker may claim a job again that failed on it (docs/reference/protocol.md 6.9, "Failure")."""

import pytest

from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.retries import Retries
from tests.unit.compactor.values import ulid

JOB, OTHER = ulid(1), ulid(2)


def test_each_failure_doubles_the_wait_up_to_five_minutes():
    retries = Retries(WorkerOptions(max_job_attempts=None))
    waits = []
    for _ in range(12):
        retries.failed(JOB, now_s=1000.0)
        waits.append(next(s for s in range(1000) if JOB not in retries.excluded(1000.0 + s)))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_thousands_of_failures_are_still_five_minutes():
    retries = Retries(WorkerOptions(max_job_attempts=None))
    for _ in range(3000):
        retries.failed(JOB, now_s=0.0)
    assert JOB in retries.excluded(299.0)
    assert JOB not in retries.excluded(300.0)


def test_a_job_is_left_to_others_after_its_last_attempt():
    retries = Retries(WorkerOptions(max_job_attempts=2))
    retries.failed(JOB, now_s=0.0)
    assert retries.attempt(JOB) == 2
    assert JOB not in retries.excluded(1e6)
    retries.failed(JOB, now_s=0.0)
    assert JOB in retries.excluded(1e6)
    assert retries.attempt(OTHER) == 1


def test_jobs_finished_by_another_worker_are_dropped():
    retries = Retries(WorkerOptions(max_job_attempts=None))
    retries.failed(JOB, now_s=0.0)
    retries.failed(OTHER, now_s=0.0)
    retries.keep_only({OTHER})
    assert retries.excluded(0.0) == {OTHER}
    assert retries.attempt(JOB) == 1


@pytest.mark.parametrize("change", [None, 1])
def test_options_may_change_while_jobs_wait(change):
    retries = Retries(WorkerOptions(max_job_attempts=None))
    retries.failed(JOB, now_s=0.0)
    retries.options = WorkerOptions(max_job_attempts=change)
    assert (JOB in retries.excluded(10.0)) == (change is not None)
