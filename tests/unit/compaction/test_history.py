"""The lifecycle of a compaction from the versions of its file that are retained."""

import pytest

from shale.compaction.history import (
    CompactionLifecycle,
    CompactionsVersion,
    ObservedEntry,
    all_ids,
    lifecycle_of,
)
from shale.types import Compaction, CompactionContext, KeyRange, Seq, Subcompaction, WorkerClaim
from tests.unit.compactor.values import S, compactions, entry, spec, sst, ulid

WHAT = spec(runs=(2, 1), to=1)
SUBMITTED, SCHEDULED, COMPACTED, COMPLETED, FAILED = (
    entry(9, WHAT, status) for status in (S.SUBMITTED, S.SCHEDULED, S.COMPACTED, S.COMPLETED, S.FAILED)
)
OTHERS_ENDED = (entry(3, WHAT, S.COMPLETED), entry(4, WHAT, S.FAILED), entry(5, WHAT, S.COMPACTED))


def running(worker: str | None = "w", *outputs: int) -> Compaction:
    claim = None if worker is None else WorkerClaim(worker_id=worker, last_heartbeat_ms=0)
    part = Subcompaction(range=KeyRange(), output_ssts=tuple(sst(100 + size, size) for size in outputs))
    context = CompactionContext(subcompactions=(part,), retention_min_seq=Seq(0)) if outputs else None
    return entry(9, WHAT, S.RUNNING, worker=claim, ctx=context)


def version(file_id: int, *entries: Compaction) -> CompactionsVersion:
    """Return a version that was written at ten times its id."""
    return CompactionsVersion.of(file_id, 10 * file_id, compactions(*entries))


def versions(*entries: Compaction | None, first: int = 1) -> tuple[CompactionsVersion, ...]:
    return tuple(version(first + index, *([] if each is None else [each])) for index, each in enumerate(entries))


def observed(file_id: int, what: Compaction, output_bytes: int = 0) -> ObservedEntry:
    return ObservedEntry(file_id, 10 * file_id, what, output_bytes)


def test_a_version_keeps_the_size_of_published_output_in_place_of_the_progress():
    kept = version(7, running("w", 50, 30), entry(8, WHAT, S.COMPACTED, output_ssts=(sst(1, 5),)), entry(10, WHAT))
    assert (kept.file_id, kept.written_ms) == (7, 70)
    assert kept.compactions == compactions(
        running(), entry(8, WHAT, S.COMPACTED, output_ssts=(sst(1, 5),)), entry(10, WHAT)
    )
    assert kept.output_bytes == {ulid(9): 80, ulid(8): 5, ulid(10): 0}


def test_the_whole_lifecycle():
    seen = (
        version(1, SUBMITTED),
        version(2, running(), *OTHERS_ENDED[:1]),
        version(3, running("w", 50, 30), *OTHERS_ENDED),
        version(4, FAILED),
        version(5),
        version(6),
    )
    assert lifecycle_of(ulid(9), seen) == CompactionLifecycle(
        started_ms=20,
        finished_ms=40,
        attempts=1,
        running_since=observed(2, running()),
        last=observed(4, FAILED),
        before_end=observed(3, running(), 80),
        ended_in=seen[3],
        ended_before=frozenset({ulid(3), ulid(4)}),
        vanished_in=seen[4],
    )


def test_a_running_compaction_has_no_end():
    seen = versions(SCHEDULED, running(), running("w", 50))
    assert lifecycle_of(ulid(9), seen) == CompactionLifecycle(
        started_ms=20, attempts=1, running_since=observed(2, running()), last=observed(3, running(), 50)
    )


def test_an_end_without_the_version_before_it():
    """The version in which it was last active is followed by one that is not its successor: GC deleted that."""
    seen = (version(1, SCHEDULED), version(2, running()), version(4, COMPLETED))
    assert lifecycle_of(ulid(9), seen) == CompactionLifecycle(
        started_ms=20, attempts=1, running_since=observed(2, running()), last=observed(4, COMPLETED)
    )
    (only,) = versions(COMPLETED, first=40)
    assert lifecycle_of(ulid(9), (only,)) == CompactionLifecycle(last=observed(40, COMPLETED))
    assert lifecycle_of(ulid(8), (only,)) == CompactionLifecycle()


@pytest.mark.parametrize(
    ("entries", "started_ms"),
    [
        pytest.param((SUBMITTED, running()), 20, id="claimed"),
        pytest.param((SUBMITTED, COMPACTED), 20, id="claimed and done between two versions"),
        pytest.param((SCHEDULED, None, running()), 30, id="not in between"),
        pytest.param((running(), running()), None, id="the claim is not retained"),
        pytest.param((COMPACTED, COMPLETED), None, id="nor is any of its progress"),
        pytest.param((SUBMITTED, SCHEDULED), None, id="not claimed yet"),
    ],
)
def test_the_start_is_the_first_claim(entries, started_ms):
    assert lifecycle_of(ulid(9), versions(*entries)).started_ms == started_ms


@pytest.mark.parametrize(
    ("entries", "attempts"),
    [
        pytest.param((SUBMITTED, SCHEDULED), 0, id="never claimed"),
        pytest.param((running("a"), running("a")), 1, id="heartbeats"),
        pytest.param((running("a"), running("b"), running("a")), 3, id="handed over"),
        pytest.param((running("a"), SCHEDULED, running("a")), 2, id="released and claimed by the same worker"),
        pytest.param((running(None), running(None)), 1, id="a claim without worker"),
        pytest.param((SCHEDULED, COMPACTED), 1, id="claimed between two versions"),
        pytest.param((running("a"), running("b"), COMPACTED), 2, id="the result is no further claim"),
        pytest.param((running("a"), COMPACTED, COMPLETED), 1, id="nor is the end"),
        pytest.param((COMPLETED,), 0, id="only the end is retained"),
    ],
)
def test_claims_are_counted(entries, attempts):
    assert lifecycle_of(ulid(9), versions(*entries)).attempts == attempts


@pytest.mark.parametrize(
    ("life", "end_ms"),
    [
        pytest.param(CompactionLifecycle(), None, id="unknown"),
        pytest.param(CompactionLifecycle(last=observed(3, FAILED)), 30, id="last seen"),
        pytest.param(CompactionLifecycle(last=observed(3, FAILED), finished_ms=25), 25, id="stored"),
        pytest.param(
            CompactionLifecycle(last=observed(3, FAILED), finished_ms=25, ended_in=version(2)), 20, id="its version"
        ),
    ],
)
def test_the_best_known_end(life, end_ms):
    assert life.end_ms == end_ms


def test_ids_of_all_versions():
    seen = (version(1, entry(5, WHAT), entry(2, WHAT)), version(2, entry(5, WHAT), entry(3, WHAT)), version(3))
    assert all_ids(seen) == (ulid(2), ulid(3), ulid(5))
    assert all_ids(()) == ()
