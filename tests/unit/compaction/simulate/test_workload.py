"""The parameters of a workload, the keys that it draws, and workloads that were recorded."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from shale.compaction.simulate.rows import NEVER
from shale.compaction.simulate.workload import (
    FlushHistory,
    KeyChooser,
    Keys,
    RecordedFlush,
    Workload,
    history_of,
    recorded_flushes,
)
from shale.errors import InvalidRequestError
from shale.types import RunId, SortedRun, Tree
from tests.unit.compaction.harness import view_at
from tests.unit.compaction.simulate.harness import shown
from tests.unit.compactor.values import manifest

ROW = 16 + 100 + 20
TEN = Workload(rate_bytes_s=ROW, l0_bytes=10 * ROW, duration_s=35.0, overwrite_share=0.0)
"""An L0 of ten rows every ten seconds."""


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"overwrite_share": 0.0, "delete_share": 0.0}, id="new keys only"),
        pytest.param({"overwrite_share": 1.0}, id="overwrites only"),
        pytest.param({"overwrite_share": 0.0, "delete_share": 1.0}, id="deletions only"),
        pytest.param({"overwrite_share": 0.5, "delete_share": 0.5}, id="no new keys"),
        pytest.param({"value_bytes": 0}, id="empty values"),
        pytest.param({"key_bytes": 1}, id="keys of a byte"),
        pytest.param({"rows_max": 1}, id="one row"),
        pytest.param({"ttl_s": 0.5}, id="a short lifetime"),
        pytest.param({"rate_bytes_s": 0.5, "l0_bytes": ROW, "duration_s": 2 * ROW}, id="one L0 of one row"),
        pytest.param(
            {"recorded": (RecordedFlush(0.0, 1), RecordedFlush(0.5, 1)), "duration_s": 0.1}, id="two recorded flushes"
        ),
    ],
)
def test_bounds_of_the_parameters(changed):
    assert replace(TEN, **changed).due


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rate_bytes_s": 0}, "rate must"),
        ({"duration_s": -1.0}, "duration must"),
        ({"l0_bytes": 0}, "l0_bytes must"),
        ({"key_bytes": 0}, "key_bytes must"),
        ({"ttl_s": 0.0}, "ttl must"),
        ({"rows_max": 0}, "rows_max must"),
        ({"overwrite_share": -0.1}, "overwrite_share must lie between 0 and 1, not -0.1"),
        ({"overwrite_share": 1.1}, "not 1.1; overwrite_share and delete_share are more than 1 together"),
        ({"delete_share": math.nan}, "delete_share must lie between 0 and 1, not nan"),
        ({"overwrite_share": 0.6, "delete_share": 0.5}, "more than 1 together"),
        ({"value_bytes": -1}, "must not be negative"),
        ({"initial_keys": -1}, "must not be negative"),
        ({"l0_bytes": ROW - 1}, "l0_bytes 135 is less than one row of 136 bytes"),
        ({"l0_bytes": 1}, "l0_bytes 1 is less than one row"),
        ({"duration_s": 9.9}, "not one L0 of 1360 bytes is full after 9.9 s"),
        ({"recorded": ()}, "two flushes at different times, and 0 were recorded"),
        ({"recorded": (RecordedFlush(5.0, 1),)}, "and 1 were recorded"),
        ({"recorded": (RecordedFlush(0.0, 1), RecordedFlush(0.0, 1))}, "and 2 were recorded"),
        ({"recorded": (RecordedFlush(0.0, 1), RecordedFlush(1.0, 0))}, "a recorded flush must have bytes"),
    ],
)
def test_what_is_out_of_range_is_named(changed, named):
    with pytest.raises(InvalidRequestError) as error:
        replace(TEN, **changed)
    assert named in str(error.value)
    assert str(error.value).count(";") == named.count(";"), "nothing else is wrong"


def test_sizes_and_times():
    assert (TEN.row_bytes, TEN.tombstone_bytes, TEN.end_s, TEN.scale) == (136, 36, 35.0, 1.0)
    assert TEN.due == [(10.0, 1360), (20.0, 1360), (30.0, 1360)]
    assert replace(TEN, initial_keys=70, rows_max=25).scale == (30 + 70) / 25
    assert replace(TEN, rows_max=29).scale == 30 / 29


def test_a_recorded_workload():
    flushes = (RecordedFlush(0.0, 300, 3), RecordedFlush(60.0, 100, 5))
    load = replace(TEN, recorded=flushes)
    assert (load.row_bytes, load.tombstone_bytes, load.end_s) == (50, 36, 60.0)
    assert load.due == [(0.0, 300), (60.0, 100)]
    assert replace(load, recorded=(*flushes, RecordedFlush(90.0, 100, 5))).end_s == 90.0
    small = replace(TEN, recorded=(RecordedFlush(0.0, 100, 10), RecordedFlush(60.0, 100, 10)))
    assert small.tombstone_bytes == small.row_bytes == 10, "a tombstone is not larger than a row"
    for unknown in (None, 0):
        partly = replace(TEN, recorded=(flushes[0], RecordedFlush(60.0, 100, unknown)))
        assert partly.row_bytes == 136, "the number of rows is not known"


def drawn(load: Workload, count: int | None = None) -> list[list[tuple[int, float, bool]]]:
    """Return the rows of the first flushes."""
    return [shown(flush.rows) for flush in islice(KeyChooser(load).flushes(), count)]


def keys_of(load: Workload, count: int | None = None) -> list[list[int]]:
    return [[key for key, _, _ in flush] for flush in drawn(load, count)]


def test_new_keys_are_numbered_in_order():
    chooser = KeyChooser(TEN)
    flushes = list(chooser.flushes())
    assert [flush.due_s for flush in flushes] == [10.0, 20.0, 30.0]
    assert [flush.rows.keys.tolist() for flush in flushes] == [[*range(n, n + 10)] for n in (0, 10, 20)]
    assert chooser.count == 30
    assert keys_of(replace(TEN, initial_keys=5), 1) == [[*range(5, 15)]]


def test_fewer_rows_represent_many():
    few = replace(TEN, initial_keys=70, rows_max=20)
    chooser = KeyChooser(few)
    assert few.scale == 5.0
    assert shown(chooser.initial()) == [(key, NEVER, False) for key in range(14)]
    assert [len(flush.rows.keys) for flush in chooser.flushes()] == [2, 2, 2]
    assert keys_of(replace(TEN, rows_max=1)) == [[0], [1], [2]], "at least one row per flush"


def test_a_lifetime_begins_when_the_flush_is_due():
    first, second, _ = drawn(replace(TEN, ttl_s=7.0))
    assert {expires_s for _, expires_s, _ in first} == {17.0}
    assert {expires_s for _, expires_s, _ in second} == {27.0}
    assert {expires_s for _, expires_s, _ in drawn(TEN)[0]} == {NEVER}


def test_the_first_row_of_an_empty_database_is_a_new_key():
    assert drawn(replace(TEN, overwrite_share=1.0)) == [[(0, NEVER, False)]] * 3
    assert drawn(replace(TEN, overwrite_share=0.0, delete_share=1.0)) == [[(0, NEVER, True)]] * 3
    assert drawn(replace(TEN, l0_bytes=ROW, overwrite_share=0.0, delete_share=1.0), 2) == [
        [(0, NEVER, False)],
        [(0, NEVER, True)],
    ]
    assert drawn(replace(TEN, l0_bytes=ROW, overwrite_share=0.0, delete_share=1.0, initial_keys=1), 1) == [
        [(0, NEVER, True)]
    ]


def test_sequential_overwrites_go_round():
    load = replace(TEN, l0_bytes=2 * ROW, overwrite_share=1.0, initial_keys=5, keys=Keys.SEQUENTIAL)
    assert keys_of(load, 4) == [[0, 1], [2, 3], [0, 4], [1, 2]]
    few = replace(load, l0_bytes=10 * ROW, initial_keys=3)
    assert keys_of(few, 1) == [[0, 1, 2]]


ONE_BY_ONE = Workload(
    rate_bytes_s=ROW, l0_bytes=ROW, duration_s=2_000.0, overwrite_share=1.0, initial_keys=1024, rows_max=10_000
)
"""2,000 flushes of one row each."""


def chosen(load: Workload) -> np.ndarray:
    return np.array([key for (key,) in keys_of(load)])


def test_uniform_overwrites_reach_all_keys_alike():
    keys = chosen(ONE_BY_ONE)
    assert len(keys) == 2_000
    quarters, _ = np.histogram(keys, bins=[0, 256, 512, 768, 1024])
    assert sum(quarters) == 2_000
    assert quarters == pytest.approx([500] * 4, rel=0.1)


def test_zipf_overwrites_prefer_few_keys():
    """With exponent 1, each doubling of the rank has the same share: a tenth of 1,024 keys."""
    keys = chosen(replace(ONE_BY_ONE, keys=Keys.ZIPF))
    doublings, _ = np.histogram(keys, bins=[2**n for n in range(11)])
    assert sum(doublings) == 2_000
    assert doublings == pytest.approx([200] * 10, rel=0.2)


@pytest.mark.parametrize("keys", list(Keys))
def test_overwrites_choose_among_the_keys_that_exist(keys):
    load = replace(ONE_BY_ONE, keys=keys, overwrite_share=0.5, delete_share=0.2, initial_keys=0)
    chooser, known, deleted, again = KeyChooser(load), 0, 0, 0
    for flush in islice(chooser.flushes(), 2_000):
        ((key, _, is_deleted),) = shown(flush.rows)
        assert key <= known
        again += key < known
        deleted += is_deleted
        known += key == known
    assert chooser.count == known
    assert again == pytest.approx(1_400, rel=0.05)
    assert deleted == pytest.approx(400, rel=0.1)


def test_shares_hold_inside_a_flush():
    load = replace(TEN, l0_bytes=10_000 * ROW, duration_s=25_000.0, overwrite_share=0.0, delete_share=0.25)
    first, second = drawn(replace(load, initial_keys=10**6, rows_max=2 * 10**6))
    tombstones = [sum(is_deleted for _, _, is_deleted in flush) for flush in (first, second)]
    assert tombstones == pytest.approx([2_500] * 2, rel=0.05)


def test_recorded_flushes_have_the_recorded_number_of_keys():
    """Overwritten keys of one L0 are stored once, so more are drawn."""
    flushes = tuple(RecordedFlush(60.0 * n, 1_000, 100) for n in range(3))
    load = replace(TEN, recorded=flushes, overwrite_share=0.5, keys=Keys.UNIFORM, ttl_s=5.0)
    found = drawn(load)
    assert [len(flush) for flush in found] == [100] * 3
    for flush, due_s in zip(found, (0.0, 60.0, 120.0), strict=True):
        assert {expires_s for _, expires_s, _ in flush} == {due_s + 5.0}
        assert len({key for key, _, _ in flush}) == 100
    never = replace(load, overwrite_share=1.0)
    assert [len(flush) for flush in drawn(never)] == [1, 1, 1], "there is one key"


def test_recorded_times_begin_at_zero():
    flushes = [RecordedFlush(70.0, 5, 9), RecordedFlush(60.0, 6), RecordedFlush(90.0, 7)]
    assert recorded_flushes(flushes) == (
        RecordedFlush(0.0, 6),
        RecordedFlush(10.0, 5, 9),
        RecordedFlush(30.0, 7),
    )
    assert recorded_flushes([]) == ()


def test_the_flushes_of_manifests():
    """An L0 is in several versions and counts once; runs of the oldest version are the initial size."""
    first, second, third = view_at(100, 5), view_at(160, 6, 1), view_at(130, 7, 2)
    run = SortedRun(id=RunId(0), ssts=(view_at(1, 40), view_at(2, 2)))
    oldest = manifest(
        Tree(l0=(first,), compacted=(run,)), a=Tree(compacted=(SortedRun(id=RunId(1), ssts=(view_at(3, 1),)),))
    )
    newest = manifest(Tree(l0=(second, first)), a=Tree(l0=(third,)))
    assert history_of([oldest, newest]) == FlushHistory(
        (RecordedFlush(0.0, 5), RecordedFlush(30.0, 7), RecordedFlush(60.0, 6)), 43
    )
    assert history_of([]) == FlushHistory((), 0)
