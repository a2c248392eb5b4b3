"""Simulated rows: merges, and the keys that are alive."""

import pytest

from shale.compaction.simulate.rows import EMPTY, NEVER, LiveKeys, merged, newest_of_each_key
from tests.unit.compaction.simulate.harness import rows, shown


def test_counts():
    found = rows((1, NEVER, True), (2, 5.0, False), (3, NEVER, True))
    assert (found.count, found.tombstone_count) == (3, 2)
    assert (EMPTY.count, EMPTY.tombstone_count) == (0, 0)
    assert merged([], tick_s=0.0, drop_tombstones=False).count == 0


def test_the_last_written_row_of_a_key_is_the_newest():
    written = rows((2, 5.0, False), (1, NEVER, False), (2, NEVER, True), (1, 7.0, False), (3, 9.0, False))
    assert shown(newest_of_each_key(written)) == [(1, 7.0, False), (2, NEVER, True), (3, 9.0, False)]


@pytest.mark.parametrize(
    ("tick_s", "kept"),
    [
        pytest.param(9.0, [(1, 10.0, False), (2, NEVER, False), (3, NEVER, True)], id="before the expiry"),
        pytest.param(10.0, [(1, NEVER, True), (2, NEVER, False), (3, NEVER, True)], id="at the expiry"),
    ],
)
def test_an_expired_row_becomes_a_tombstone(tick_s, kept):
    sources = [rows((1, 10.0, False), (3, NEVER, True)), rows((1, NEVER, False), (2, NEVER, False), (3, 99.0, False))]
    assert shown(merged(sources, tick_s=tick_s, drop_tombstones=False)) == kept
    alive = [each for each in kept if not each[2]]
    assert shown(merged(sources, tick_s=tick_s, drop_tombstones=True)) == alive


def test_keys_are_alive_until_they_expire_or_are_deleted():
    live = LiveKeys()
    assert live.count(0.0) == 0
    live.apply(rows((0, 10.0, False), (1, NEVER, False), (2, NEVER, True)))
    assert [live.count(now_s) for now_s in (0.0, 9.9, 10.0)] == [2, 2, 1]
    live.apply(rows((0, 20.0, False), (1, NEVER, True)))
    assert [live.count(now_s) for now_s in (10.0, 20.0)] == [1, 0]
    live.apply(rows())
    assert live.count(10.0) == 1


@pytest.mark.parametrize("key", [1_022, 1_023, 1_024, 1_025, 2_047, 2_048, 100_000])
def test_keys_have_no_limit(key):
    live = LiveKeys()
    live.apply(rows((5, NEVER, False)))
    live.apply(rows((key, NEVER, False)))
    live.apply(rows((key + 1, NEVER, False)))
    assert live.count(0.0) == 3
    live.apply(rows((5, NEVER, True), (key, NEVER, True)))
    assert live.count(0.0) == 1
