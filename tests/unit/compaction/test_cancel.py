"""Which entries can be cancelled, and what a cancelled one looks like."""

import pytest

from shale.compaction.cancel import TooLateToCancel, with_cancelled
from shale.errors import NotFoundError
from shale.types import CompactionContext, Seq
from tests.unit.compactor.values import S, compactions, entry, spec, ulid

WHAT = spec(runs=(2, 1), to=1)
OTHER = entry(8, spec((4,), to=9), S.RUNNING)


@pytest.mark.parametrize("status", [S.SUBMITTED, S.SCHEDULED, S.RUNNING])
def test_a_cancelled_entry_is_failed_without_worker_and_progress(status):
    context = CompactionContext(subcompactions=(), retention_min_seq=Seq(0))
    mine = entry(9, WHAT, status, ctx=context if status is S.RUNNING else None)
    assert with_cancelled(compactions(OTHER, mine), ulid(9)) == compactions(OTHER, entry(9, WHAT, S.FAILED))


@pytest.mark.parametrize("status", [S.COMPACTED, S.COMPLETED, S.FAILED])
def test_an_entry_with_a_result_cannot_be_cancelled(status):
    with pytest.raises(TooLateToCancel, match=f"{ulid(9)} is {status.name.lower()}: too late"):
        with_cancelled(compactions(entry(9, WHAT, status)), ulid(9))


def test_an_unknown_entry_is_not_found():
    with pytest.raises(NotFoundError, match=str(ulid(7))):
        with_cancelled(compactions(OTHER), ulid(7))
