"""Edits of the entries of a compactions file (docs/reference/protocol.md 6.3)."""

import pytest

from shale.compaction.entries import (
    count_claimable,
    count_using_capacity,
    finished,
    retained,
    with_entries,
    with_entry,
    with_status,
)
from shale.types import CompactionContext, Compactions, Epoch, Seq
from tests.unit.compactor.values import S, compactions, entry, spec, sst, statuses

WHAT = spec(runs=(1,), to=1)
EVERY = compactions(*(entry(index + 1, WHAT, status) for index, status in enumerate(S)))
"""One entry per status, in the order of the enumeration."""


def test_all_active_entries_and_the_newest_finished_one_are_retained():
    value = compactions(
        entry(1, WHAT, S.COMPLETED),
        entry(2, WHAT, S.RUNNING),
        entry(3, WHAT, S.FAILED),
        entry(4, WHAT, S.COMPLETED),
        entry(5, WHAT, S.COMPACTED),
        entry(6, WHAT),
    )
    assert statuses(retained(value)) == {2: S.RUNNING, 4: S.COMPLETED, 5: S.COMPACTED, 6: S.SUBMITTED}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(compactions(), id="no entries"),
        pytest.param(compactions(entry(1, WHAT, S.COMPLETED), entry(2, WHAT)), id="one is finished"),
        pytest.param(compactions(entry(1, WHAT, S.RUNNING), entry(2, WHAT)), id="none is finished"),
    ],
)
def test_nothing_to_forget_is_the_same_value(value):
    assert retained(value) is value


def test_changed_entries_replace_those_of_their_id_and_new_ones_get_their_place():
    value = Compactions(compactor_epoch=Epoch(3), entries=(entry(2, WHAT), entry(4, WHAT)))
    changed = with_entries(value, [entry(3, WHAT, S.RUNNING), entry(4, WHAT, S.SCHEDULED), entry(1, WHAT, S.FAILED)])
    assert list(statuses(changed).items()) == [(1, S.FAILED), (2, S.SUBMITTED), (3, S.RUNNING), (4, S.SCHEDULED)]
    assert changed.compactor_epoch == 3
    assert with_entry(value, entry(2, WHAT, S.FAILED)) == with_entries(value, [entry(2, WHAT, S.FAILED)])


def test_counts_by_status():
    def counted(count):
        return [status for status in S if count(compactions(entry(1, WHAT, status)))]

    assert counted(count_using_capacity) == [S.SUBMITTED, S.RUNNING, S.SCHEDULED]
    assert counted(count_claimable) == [S.RUNNING, S.SCHEDULED]
    assert (count_using_capacity(EVERY), count_claimable(EVERY)) == (3, 2)


@pytest.mark.parametrize("status", list(S))
def test_entries_of_one_status(status):
    assert with_status(EVERY, status) == [each for each in EVERY.entries if each.status is status]
    assert len(with_status(EVERY, status)) == 1


def test_a_finished_entry_keeps_its_output_but_neither_worker_nor_progress():
    context = CompactionContext(subcompactions=(), retention_min_seq=Seq(0))
    running = entry(9, WHAT, S.RUNNING, ctx=context, output_ssts=(sst(20),))
    assert finished(running, S.COMPLETED) == entry(9, WHAT, S.COMPLETED, output_ssts=(sst(20),))
