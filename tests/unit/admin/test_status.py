"""The status of a compaction: progress from published SSTs, times and attempts from older versions."""

from dataclasses import replace

import pytest

from shale.admin.retained import VERSIONS_BYTES_MAX, from_both_ends
from shale.compaction.history import CompactionLifecycle, CompactionsVersion, lifecycle_of
from shale.compaction.outcome import CANCELLED, UNEXPLAINED, failure_reason, outcome
from shale.compaction.progress import progress_of
from shale.compaction.records import CompactionRecord
from shale.compaction.status import Phase, compaction_info, phase_of, with_record
from shale.protocol.versioned import VersionMeta
from shale.types import (
    CompactionContext,
    KeyRange,
    RunId,
    Seq,
    SortedRun,
    Subcompaction,
    Tree,
    WorkerClaim,
)
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, sst, tree, ulid, view

WHAT = spec(runs=(2, 1), to=1)
INPUTS = (
    view(1, 100, (b"a", b"f")),
    view(2, 100, (b"g", b"m")),
    view(3, 100, (b"n", b"z")),
    view(4, 100, (b"a", b"z")),
)


def context(*ranges):
    """Return a context of ranges (start, end, outputs)."""
    subs = tuple(
        Subcompaction(range=KeyRange.half_open(start, end), output_ssts=tuple(outputs))
        for start, end, outputs in ranges
    )
    return CompactionContext(subcompactions=subs, retention_min_seq=Seq(0))


def running(*ranges, worker="w", beat_ms=0):
    claim = WorkerClaim(worker_id=worker, last_heartbeat_ms=beat_ms)
    return entry(9, WHAT, S.RUNNING, worker=claim, ctx=context(*ranges) if ranges else None)


def versions(*entries, ms=1000, first_id=1):
    """Return one version per second; ``None``: the entry is absent."""
    return tuple(
        CompactionsVersion.of(first_id + index, ms * (index + 1), compactions(*([] if each is None else [each])))
        for index, each in enumerate(entries)
    )


def test_phases():
    phases = {status: phase_of(entry(9, WHAT, status)) for status in S}
    assert phases == {
        S.SUBMITTED: Phase.SUBMITTED,
        S.SCHEDULED: Phase.SCHEDULED,
        S.RUNNING: Phase.READING,
        S.COMPACTED: Phase.COMMITTING,
        S.COMPLETED: Phase.COMPLETED,
        S.FAILED: Phase.FAILED,
    }
    assert phase_of(running((None, None, [sst(20)]))) is Phase.WRITING
    assert [phase for phase in Phase if phase.is_finished] == [Phase.COMPLETED, Phase.FAILED]


@pytest.mark.parametrize(
    ("ranges", "ssts", "bytes_", "share"),
    [
        pytest.param((), 0, 0, 0.0, id="nothing published"),
        pytest.param(((None, None, [sst(20, 30, (b"a", b"c"))]),), 0, 30, 7.5, id="by outputs"),
        pytest.param(((None, None, [sst(20, 30, (b"a", b"g"))]),), 1, 100, 25.0, id="by inputs that are passed"),
        pytest.param(
            ((None, b"n", [sst(20, 90, (b"a", b"m"))]), (b"n", None, [])), 2, 200, 50.0, id="one of two ranges is done"
        ),
        pytest.param(
            ((None, b"n", []), (b"n", None, [sst(20, 90, (b"n", b"z"))])), 1, 100, 25.0, id="the later range is done"
        ),
        pytest.param(((None, None, [sst(20, 900, (b"a", b"z"))]),), 4, 400, 99.9, id="never above its inputs"),
    ],
)
def test_progress_of_a_running_job(ranges, ssts, bytes_, share):
    progress = progress_of(running(*ranges), INPUTS)
    assert (progress.input_ssts_processed, progress.input_ssts) == (ssts, 4)
    assert (progress.bytes_processed, progress.bytes_total, progress.percentage) == (bytes_, 400, share)


def test_progress_of_a_result_and_without_inputs():
    done = progress_of(entry(9, WHAT, S.COMPACTED, output_ssts=(sst(20, 50),)), INPUTS)
    assert (done.input_ssts_processed, done.bytes_processed, done.percentage) == (4, 400, 100.0)
    assert (done.output_ssts, done.output_bytes) == (1, 50)
    unknown = progress_of(running((None, None, [sst(20, 50)])), None)
    assert (unknown.bytes_processed, unknown.bytes_total, unknown.percentage) == (50, None, None)


def test_a_life_from_submission_to_the_end():
    half = running((None, None, [sst(20, 50)]))
    seen = versions(
        entry(9, WHAT),
        entry(9, WHAT, S.SCHEDULED),
        running(),
        half,
        entry(9, WHAT, S.COMPACTED),
        entry(9, WHAT, S.COMPLETED),
    )
    life = lifecycle_of(ulid(9), seen)
    assert (life.started_ms, life.finished_ms, life.attempts) == (3000, 6000, 1)
    assert life.before_end.entry.status is S.COMPACTED
    assert life.vanished_in is None


def test_collected_versions_leave_times_and_progress_unknown():
    seen = versions(running(), entry(9, WHAT, S.COMPLETED), first_id=40)
    life = lifecycle_of(ulid(9), seen)
    assert (life.started_ms, life.finished_ms, life.attempts) == (None, 2000, 1)
    late = lifecycle_of(ulid(9), versions(entry(9, WHAT, S.COMPLETED), first_id=40))
    assert (late.started_ms, late.finished_ms, late.attempts) == (None, None, 0)
    assert lifecycle_of(ulid(8), seen).last is None


def test_every_claim_is_an_attempt():
    waiting = entry(9, WHAT, S.SCHEDULED)
    reclaimed = lifecycle_of(ulid(9), versions(waiting, running(worker="a"), running(worker="a", beat_ms=5), waiting))
    assert reclaimed.attempts == 1
    again = versions(waiting, running(worker="a"), waiting, running(worker="a"), running(worker="b"))
    assert lifecycle_of(ulid(9), again).attempts == 3


def info(mine, seen, now_ms, error=None):
    return compaction_info(mine, inputs=INPUTS, life=lifecycle_of(mine.id, seen), now_ms=now_ms, error=error)


def test_the_end_is_estimated_from_what_was_gained():
    half = running((None, None, [sst(20, 200, (b"a", b"c"))]), beat_ms=4000)
    told = info(half, versions(entry(9, WHAT, S.SCHEDULED), running(), half), now_ms=12_000)
    assert told.estimated_completion_ms == 22_000, "200 of 400 bytes took from 2 s to 12 s"
    assert told.heartbeat_age_ms == 8000
    assert info(running(), versions(running()), now_ms=12_000).estimated_completion_ms is None


STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14,), (8,)))


@pytest.mark.parametrize(
    ("before", "others", "told"),
    [
        pytest.param(entry(9, spec((4, 3), to=9)), (), "V7: ", id="refused at submission"),
        pytest.param(entry(9, spec(runs=(5,), to=5), S.SCHEDULED), (), "V4: ", id="its sources went"),
        pytest.param(entry(9, spec(runs=(5,), to=5), S.COMPACTED), (), "V4: ", id="its sources went before the commit"),
        pytest.param(
            entry(9, spec(runs=(3, 2), to=2), S.RUNNING),
            (entry(8, spec(runs=(2, 1), to=1), S.COMPLETED),),
            f"V12: compaction {ulid(8)}",
            id="swept",
        ),
        pytest.param(entry(9, spec(runs=(3, 2), to=2), S.RUNNING), (), "cancelled", id="nothing is wrong with it"),
        pytest.param(entry(9, spec(runs=(3, 2), to=2)), (), "cancelled", id="cancelled before it was scheduled"),
        pytest.param(entry(9, spec(runs=(3, 2), to=2), S.COMPACTED), (), UNEXPLAINED, id="the outcome is unknown"),
    ],
)
def test_why_it_failed(before, others, told):
    ended = entry(9, before.spec, S.FAILED)
    seen = (
        CompactionsVersion.of(1, 1000, compactions(before)),
        CompactionsVersion.of(2, 2000, compactions(ended, *others)),
    )
    assert failure_reason(lifecycle_of(ulid(9), seen), STATE).startswith(told)
    assert failure_reason(lifecycle_of(ulid(9), seen), None) == UNEXPLAINED
    assert failure_reason(lifecycle_of(ulid(9), seen[1:]), STATE) == UNEXPLAINED


def test_a_cancelled_one_is_not_blamed_on_what_had_ended_before_it():
    finished_before = entry(8, spec(runs=(3, 2), to=2), S.COMPLETED)
    started, ended = (entry(9, spec(runs=(2,), to=2), status) for status in (S.RUNNING, S.FAILED))
    seen = tuple(
        CompactionsVersion.of(index + 1, 1000 * index, compactions(finished_before, each))
        for index, each in enumerate((started, ended))
    )
    assert failure_reason(lifecycle_of(ulid(9), seen), STATE) == CANCELLED


def test_a_failed_one_that_names_its_worker_was_not_cancelled():
    started = entry(9, spec(runs=(3, 2), to=2), S.RUNNING)
    ended = replace(started, status=S.FAILED, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=1))
    seen = tuple(
        CompactionsVersion.of(index + 1, 1000 * index, compactions(each)) for index, each in enumerate((started, ended))
    )
    assert failure_reason(lifecycle_of(ulid(9), seen), STATE) == UNEXPLAINED


@pytest.mark.parametrize(("seen_ms", "recorded_ms", "told"), [(5, 7, 5), (7, 5, 5), (None, 7, 7), (None, None, None)])
def test_the_start_is_the_earliest_that_is_known(seen_ms, recorded_ms, told):
    """A coordinator that was restarted since has recorded a later one."""
    life = CompactionLifecycle(started_ms=seen_ms)
    info = compaction_info(entry(9, spec((1,), to=0), S.FAILED), inputs=None, life=life, now_ms=10)
    assert with_record(info, CompactionRecord(id=ulid(9), started_ms=recorded_ms)).started_ms == told


def ended_status(mine, *manifests, gap=0):
    gone = CompactionsVersion.of(2 + gap, 3000, compactions())
    ended = outcome(lifecycle_of(mine.id, (CompactionsVersion.of(1, 1000, compactions(mine)), gone)), manifests)
    return None if ended is None else ended.status


def test_how_a_vanished_one_ended():
    """Several entries that end in one write leave one finished entry; the manifest shows the outcome of the others."""
    result = manifest(Tree(compacted=(SortedRun(id=RunId(1), ssts=(view(30),)),)))
    before = manifest(tree((), (2, 1)))
    compacted = entry(9, WHAT, S.COMPACTED, output_ssts=(sst(30),))
    assert ended_status(compacted, before, result) is S.COMPLETED
    assert ended_status(compacted, before) is S.FAILED
    assert ended_status(compacted, manifest(tree((), (1,)))) is S.FAILED, "another run under the same id"
    assert ended_status(entry(9, WHAT), before) is S.FAILED
    assert ended_status(running(), before) is S.FAILED
    assert ended_status(running(), before, gap=1) is None, "it may have been Compacted in between"
    drained = entry(9, drain(b"log", (14,), (8,)))
    assert ended_status(drained, STATE, manifest(log=tree())) is S.COMPLETED
    assert ended_status(drained, STATE) is S.FAILED


def test_a_vanished_trivial_move_is_recognised_by_its_views():
    before = manifest(tree((), (2, 1)))
    moved = Tree(compacted=(SortedRun(id=RunId(1), ssts=(view(1001), view(1002))),))
    assert ended_status(entry(9, WHAT), before, manifest(moved)) is S.COMPLETED
    assert ended_status(entry(9, WHAT), manifest(moved)) is S.FAILED, "without its inputs the outcome is unknown"


def test_of_very_many_versions_the_first_and_the_last_are_read():
    metas = [VersionMeta(id=number, last_modified_ms=number, size=1) for number in range(1, 2001)]
    chosen = sorted(meta.id for meta in from_both_ends(metas))
    assert chosen == [*range(1, 257), *range(1745, 2001)]
    assert [meta.id for meta in from_both_ends(metas[:3])] == [3, 1, 2]
    large = [VersionMeta(id=number, last_modified_ms=number, size=VERSIONS_BYTES_MAX // 3) for number in range(1, 9)]
    assert sorted(meta.id for meta in from_both_ends(large)) == [1, 7, 8]
    assert from_both_ends([]) == []


def test_a_snapshot_keeps_no_progress_but_its_size():
    half = running((None, None, [sst(20, 50), sst(21, 30)]))
    (kept,) = (snapshot := CompactionsVersion.of(1, 1000, compactions(half))).compactions.entries
    assert (kept.ctx, kept.worker, kept.status) == (None, half.worker, S.RUNNING)
    assert snapshot.output_bytes == {half.id: 80}
