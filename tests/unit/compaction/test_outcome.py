"""Why a compaction failed, and how one ended that is not listed any more."""

from dataclasses import replace

import pytest

from shale.compaction.history import CompactionLifecycle, CompactionsVersion, lifecycle_of
from shale.compaction.outcome import CANCELLED, UNEXPLAINED, failure_reason, outcome
from shale.types import Compaction, RunId, SortedRun, Tree, WorkerClaim
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, sst, tree, ulid, view

WHAT = spec(runs=(2, 1), to=1)
STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14,), (8,)))


def version(file_id: int, *entries: Compaction) -> CompactionsVersion:
    return CompactionsVersion.of(file_id, 1000 * file_id, compactions(*entries))


def reason(before: Compaction, *others: Compaction, state=STATE, ended: Compaction | None = None) -> str:
    """Return the reason for an end as Failed, with other entries of the version that has it."""
    ended = ended or replace(before, status=S.FAILED, worker=None, ctx=None)
    return failure_reason(lifecycle_of(before.id, (version(1, before), version(2, ended, *others))), state)


def test_a_running_one_is_not_compared_with_others_as_at_submission():
    """Two entries with L0s of one tree break V9; that is no reason for the end of one that was scheduled before."""
    other = entry(8, spec((2, 1), to=9), S.RUNNING)
    assert reason(entry(9, spec((2, 1), to=10)), other).startswith("V9: ")
    assert reason(entry(9, spec((2, 1), to=10), S.SCHEDULED), other) == CANCELLED


def test_a_result_is_checked_by_the_rules_of_the_commit():
    """At commit, V5 compares with the own tree only, and V12 is left to the sweep."""
    mine = spec((4, 3, 2, 1), to=7)
    assert reason(entry(9, mine)).startswith("V5: ")
    assert reason(entry(9, mine, S.COMPACTED)) == UNEXPLAINED
    assert reason(entry(9, spec((2, 1), to=3), S.COMPACTED)).startswith("V5: ")
    assert reason(entry(9, WHAT, S.COMPACTED), entry(8, spec(runs=(1,), to=1), S.RUNNING)) == UNEXPLAINED


@pytest.mark.parametrize(
    ("before", "other", "told"),
    [
        pytest.param(entry(9, WHAT, S.SCHEDULED), entry(8, spec(runs=(1,), to=1), S.COMPLETED), "V12: ", id="a source"),
        pytest.param(
            entry(9, spec((1,), to=5), S.RUNNING),
            entry(8, spec(runs=(5,), to=5), S.COMPLETED),
            "V12: ",
            id="destination",
        ),
        pytest.param(entry(9, WHAT), entry(8, spec(runs=(1,), to=1), S.COMPLETED), CANCELLED, id="only submitted"),
        pytest.param(entry(9, WHAT, S.RUNNING), entry(8, spec(runs=(1,), to=1), S.FAILED), CANCELLED, id="it failed"),
        pytest.param(
            entry(9, WHAT, S.RUNNING), entry(8, spec(runs=(3,), to=3), S.COMPLETED), CANCELLED, id="unrelated"
        ),
    ],
)
def test_a_commit_in_the_same_write_ends_those_that_conflict(before, other, told):
    assert reason(before, other).startswith(told)
    if told == "V12: ":
        assert str(other.id) in reason(before, other)


def test_its_own_end_is_no_conflict():
    before = entry(9, WHAT, S.RUNNING)
    assert reason(before, ended=entry(9, WHAT, S.COMPLETED)) == CANCELLED


def test_an_end_that_dropped_the_entry_at_once_counts_as_cancelled():
    life = lifecycle_of(ulid(9), (version(1, entry(9, WHAT, S.SCHEDULED)), version(2)))
    assert failure_reason(life, STATE) == CANCELLED


def test_without_the_end_or_the_manifest_the_reason_is_unknown():
    before = entry(9, spec(runs=(7,), to=7), S.RUNNING)
    life = lifecycle_of(ulid(9), (version(1, before), version(2, replace(before, status=S.FAILED))))
    assert failure_reason(life, STATE).startswith("V4: ")
    for unknown in (replace(life, before_end=None), replace(life, ended_in=None), CompactionLifecycle()):
        assert failure_reason(unknown, STATE) == UNEXPLAINED
    assert failure_reason(life, None) == UNEXPLAINED


@pytest.mark.parametrize("status", [S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED])
def test_an_end_that_names_a_worker_was_not_an_administrators(status):
    claim = WorkerClaim(worker_id="w", last_heartbeat_ms=1)
    ended = entry(9, WHAT, S.FAILED, worker=claim)
    assert reason(entry(9, WHAT, status), ended=ended) == UNEXPLAINED
    assert reason(entry(9, WHAT, status)) == (UNEXPLAINED if status is S.COMPACTED else CANCELLED)


def found(last: Compaction, *manifests, gone: int | None = 2) -> Compaction | None:
    """Return the outcome of an entry that version 1 has and version ``gone`` has not."""
    seen = [version(1, last), *([] if gone is None else [version(gone)])]
    return outcome(lifecycle_of(last.id, seen), manifests)


def runs(*each: tuple[int, tuple[int, ...]]) -> Tree:
    """Return a tree of runs by id, with views by their milliseconds."""
    return Tree(compacted=tuple(SortedRun(id=RunId(id_), ssts=tuple(map(view, views))) for id_, views in each))


COMPACTED = entry(9, WHAT, S.COMPACTED, output_ssts=(sst(30), sst(31)))


@pytest.mark.parametrize(
    ("last", "manifests", "status"),
    [
        pytest.param(COMPACTED, (STATE, manifest(runs((1, (30, 31))))), S.COMPLETED, id="the manifest has its result"),
        pytest.param(COMPACTED, (manifest(runs((1, (30, 31)))), STATE), S.COMPLETED, id="in any version"),
        pytest.param(COMPACTED, (manifest(runs((1, (31, 30)))),), S.FAILED, id="in another order"),
        pytest.param(COMPACTED, (manifest(runs((1, (30,)))),), S.FAILED, id="half of it"),
        pytest.param(COMPACTED, (manifest(runs((2, (9,)), (1, (30, 31)))),), S.FAILED, id="a source is left"),
        pytest.param(COMPACTED, (manifest(runs((3, (30, 31)))),), S.FAILED, id="no run of its destination"),
        pytest.param(COMPACTED, (), S.FAILED, id="no manifest"),
        pytest.param(
            entry(9, spec((2, 1), to=5, segment=b"x"), S.COMPACTED, output_ssts=(sst(30),)),
            (manifest(runs((5, (30,)))),),
            S.FAILED,
            id="its tree is gone",
        ),
        pytest.param(
            entry(9, spec((2, 1), to=5), S.COMPACTED, output_ssts=(sst(30),)),
            (manifest(Tree(l0=(view(1),), compacted=runs((5, (30,))).compacted)),),
            S.FAILED,
            id="an L0 is left",
        ),
        pytest.param(
            entry(9, spec((2, 1), to=5), S.COMPACTED, output_ssts=(sst(30),)),
            (manifest(Tree(l0=(view(3),), compacted=runs((5, (30,)), (2, (7,))).compacted)),),
            S.COMPLETED,
            id="beside newer L0s and older runs",
        ),
        pytest.param(
            entry(9, spec((2, 1), to=5)), (STATE, manifest(runs((5, (2, 1))))), S.COMPLETED, id="moved, in key order"
        ),
        pytest.param(entry(9, spec((2, 1), to=5)), (STATE, manifest(runs((5, (2, 7))))), S.FAILED, id="not moved"),
        pytest.param(
            entry(9, spec((2, 1), to=5), S.SCHEDULED),
            (STATE, manifest(runs((5, (2, 1))))),
            S.FAILED,
            id="moves only once",
        ),
        pytest.param(entry(9, drain(b"log", (14,), (8,))), (manifest(log=tree()),), S.COMPLETED, id="drained"),
        pytest.param(
            entry(9, drain(b"log", (14,), (8,))), (manifest(log=tree((), (8,))),), S.FAILED, id="half drained"
        ),
        pytest.param(entry(9, drain(b"log", (14,), (8,))), (manifest(),), S.FAILED, id="the segment is gone"),
        pytest.param(
            entry(9, drain(b"log", (14,)), S.SCHEDULED), (manifest(log=tree()),), S.FAILED, id="not drained so"
        ),
    ],
)
def test_how_one_ended_that_vanished(last, manifests, status):
    ended = found(last, *manifests)
    assert ended == replace(last, status=status)


def test_a_listed_end_is_the_outcome():
    for ended in (entry(9, WHAT, S.COMPLETED, output_ssts=(sst(30),)), entry(9, WHAT, S.FAILED)):
        assert found(ended, STATE) is not None
        assert found(ended, STATE) == ended
    assert found(entry(9, WHAT, S.COMPLETED), STATE, gone=None) is None, "it has not vanished"
    assert outcome(CompactionLifecycle(vanished_in=version(2)), (STATE,)) is None, "it was never seen"


@pytest.mark.parametrize("status", [S.SUBMITTED, S.SCHEDULED, S.RUNNING])
def test_between_two_versions_it_may_have_become_compacted(status):
    """A Compacted one can only be committed or fail, so what the manifest shows decides."""
    assert found(entry(9, WHAT, status), STATE, gone=3) is None
    ended = found(entry(9, WHAT, status), STATE, gone=2)
    assert ended is not None
    assert (ended.status, ended.worker) == (S.FAILED, None)
    assert found(COMPACTED, STATE, gone=3) == replace(COMPACTED, status=S.FAILED)
