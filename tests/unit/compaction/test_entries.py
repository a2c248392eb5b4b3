"""The entries that remain in the compactions file (docs/reference/protocol.md 6.3)."""

from shale.compaction.entries import retained
from tests.unit.compactor.values import S, compactions, entry, spec, statuses

WHAT = spec(runs=(1,), to=1)


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


def test_nothing_to_forget_is_the_same_value():
    value = compactions(entry(1, WHAT, S.COMPLETED), entry(2, WHAT))
    assert retained(value) is value
