"""The status of a compaction: from its entry, its lifecycle and its record."""

from dataclasses import replace

import pytest

from shale.compaction.history import CompactionLifecycle, ObservedEntry
from shale.compaction.progress import progress_of
from shale.compaction.records import CompactionKind, CompactionRecord
from shale.compaction.status import CompactionInfo, Phase, compaction_info, entry_of, phase_of, with_record
from shale.types import Compaction, CompactionContext, KeyRange, Seq, Subcompaction, WorkerClaim
from tests.unit.compactor.values import S, entry, spec, sst, ulid, view

WHAT = spec(runs=(2, 1), to=1)
INPUTS = (view(1), view(2))
CLAIM = WorkerClaim(worker_id="w", last_heartbeat_ms=5_000)
OUTPUT = sst(20, 50, (b"a", b"c"))
PART = Subcompaction(range=KeyRange(), output_ssts=(OUTPUT,))
RUNNING = entry(
    9, WHAT, S.RUNNING, worker=CLAIM, ctx=CompactionContext(subcompactions=(PART,), retention_min_seq=Seq(0))
)


def claimed_at(ms: int, output_bytes: int = 0) -> CompactionLifecycle:
    return CompactionLifecycle(
        started_ms=ms, finished_ms=77, attempts=3, running_since=ObservedEntry(1, ms, RUNNING, output_bytes)
    )


def test_all_that_is_known_of_a_running_one():
    life = claimed_at(4_000, 10)
    assert compaction_info(RUNNING, inputs=INPUTS, life=life, now_ms=6_000, error="why") == CompactionInfo(
        id=ulid(9),
        spec=WHAT,
        status=S.RUNNING,
        phase=Phase.WRITING,
        inputs=INPUTS,
        outputs=(OUTPUT,),
        progress=progress_of(RUNNING, INPUTS),
        created_ms=9,
        started_ms=4_000,
        finished_ms=77,
        estimated_completion_ms=6_000 + 2_000 * 150 // 40,
        attempts=3,
        worker=CLAIM,
        heartbeat_age_ms=1_000,
        error="why",
    )


@pytest.mark.parametrize(("now_ms", "age_ms"), [(5_000, 0), (5_001, 1), (4_000, 0)])
def test_the_age_of_a_heartbeat_is_never_negative(now_ms, age_ms):
    told = compaction_info(RUNNING, inputs=None, life=CompactionLifecycle(), now_ms=now_ms)
    assert (told.heartbeat_age_ms, told.estimated_completion_ms) == (age_ms, None)


@pytest.mark.parametrize("status", [status for status in S if status is not S.RUNNING])
def test_only_a_running_one_has_a_heartbeat_and_an_estimate(status):
    mine = replace(RUNNING, status=status)
    told = compaction_info(mine, inputs=INPUTS, life=claimed_at(4_000), now_ms=6_000)
    assert (told.heartbeat_age_ms, told.estimated_completion_ms, told.worker) == (None, None, CLAIM)
    assert told.is_finished is (status in (S.COMPLETED, S.FAILED))
    assert told.phase is phase_of(mine)


def test_a_running_one_without_worker_has_no_heartbeat():
    told = compaction_info(replace(RUNNING, worker=None), inputs=INPUTS, life=claimed_at(4_000), now_ms=6_000)
    assert (told.heartbeat_age_ms, told.worker) == (None, None)
    assert told.estimated_completion_ms is not None


def info_of(mine: Compaction, **fields: object) -> CompactionInfo:
    return replace(compaction_info(mine, inputs=INPUTS, life=CompactionLifecycle(), now_ms=6_000), **fields)


RECORD = CompactionRecord(
    id=ulid(9), kind=CompactionKind.EXTERNAL, retry_of=ulid(8), output_ssts=4, output_bytes=40, attempts_count=2
)


@pytest.mark.parametrize(
    ("status", "observed", "attempts"),
    [
        pytest.param(S.SUBMITTED, 0, 2, id="submitted: those that did not succeed"),
        pytest.param(S.SCHEDULED, 0, 2, id="scheduled"),
        pytest.param(S.FAILED, 0, 2, id="failed"),
        pytest.param(S.RUNNING, 0, 3, id="running: and the current one"),
        pytest.param(S.COMPACTED, 0, 3, id="compacted: and the one that succeeded"),
        pytest.param(S.COMPLETED, 0, 3, id="completed"),
        pytest.param(S.RUNNING, 9, 9, id="more were observed"),
    ],
)
def test_attempts_of_the_record(status, observed, attempts):
    assert with_record(info_of(entry(9, WHAT, status), attempts=observed), RECORD).attempts == attempts


def test_the_output_of_the_record_is_told_where_the_entry_has_none():
    told = with_record(info_of(entry(9, WHAT, S.COMPLETED)), RECORD)
    assert (told.progress.output_ssts, told.progress.output_bytes) == (4, 40)
    assert (told.kind, told.retry_of) == (CompactionKind.EXTERNAL, ulid(8))
    listed = with_record(info_of(entry(9, WHAT, S.COMPLETED, output_ssts=(sst(1, 5),))), RECORD)
    assert (listed.progress.output_ssts, listed.progress.output_bytes) == (1, 5)
    nothing = info_of(entry(9, WHAT, S.COMPLETED))
    assert with_record(nothing, CompactionRecord(id=ulid(9), output_bytes=40)).progress == nothing.progress


@pytest.mark.parametrize(
    ("status", "recorded", "told"),
    [
        pytest.param(S.FAILED, "recorded", "recorded", id="the recorded error is better"),
        pytest.param(S.FAILED, None, "derived", id="a derived one"),
        pytest.param(S.RUNNING, "recorded", None, id="of an earlier attempt"),
        pytest.param(S.COMPLETED, "recorded", None, id="completed"),
    ],
)
def test_only_a_failed_one_has_an_error(status, recorded, told):
    info = info_of(entry(9, WHAT, status), error="derived")
    assert with_record(info, replace(RECORD, error=recorded)).error == told


@pytest.mark.parametrize(
    ("seen_ms", "recorded_ms", "told"), [(5, 7, 7), (5, None, 5), (None, 7, 7), (None, None, None)]
)
def test_the_recorded_end_is_preferred(seen_ms, recorded_ms, told):
    info = info_of(entry(9, WHAT, S.FAILED), finished_ms=seen_ms)
    assert with_record(info, replace(RECORD, finished_ms=recorded_ms)).finished_ms == told


def test_a_record_that_tells_spec_and_end_is_an_entry():
    record = replace(RECORD, spec=WHAT, status=S.COMPLETED)
    assert entry_of(record) == entry(9, WHAT, S.COMPLETED)
    assert entry_of(replace(record, spec=None)) is None
    assert entry_of(replace(record, status=None)) is None
