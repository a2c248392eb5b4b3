"""The kernel of scans against a merge in plain Python, in both directions."""

import ctypes
import gc
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.engine.scan.cached_rows import WantedRows, append_cached, last_misses
from shale.kernels.layout import point_lookup
from shale.kernels.layout import scan as layout
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_MERGE,
    Entry,
    KeyRange,
    Row,
    RunId,
    SortedRun,
    SstView,
    Tree,
)
from tests.examples import examples
from tests.guarded import GuardedPages
from tests.unit.kernels.scan.views import BOUNDS, NOW_MS, ROWS, SEQS, FakeReader, expected_rows, view_of
from tests.unit.kernels.strategies import in_order


@settings(max_examples=examples(80))
@given(
    st.lists(ROWS, max_size=2),
    st.lists(ROWS, max_size=4),
    st.tuples(BOUNDS, BOUNDS, st.none() | SEQS, NOW_MS),
    st.integers(1, 60),
    st.booleans(),
)
def test_tables_and_levels_merge(
    tables: list[list[Entry]],
    levels: list[list[Entry]],
    asked: tuple[bytes | None, bytes | None, int | None, int | None],
    rows_max: int,
    is_reversed: bool,
) -> None:
    start, end, max_seq, now_ms = asked
    slots = FakeReader()
    # Sequence numbers of the sources are apart, as they are in a database.
    sources = [
        [row._replace(seq=row.seq + 40 * (6 - age)) for row in rows] for age, rows in enumerate([*tables, *levels])
    ]
    below = sources[len(tables) :]
    view = view_of(
        slots, sources[: len(tables)], Tree(l0=tuple(slots.add(rows, block_size_bytes=128) for rows in below))
    )
    wanted = WantedRows(
        start, end, None if max_seq is None else max_seq * 8, rows_max, None, now_ms, is_reversed=is_reversed
    )
    found: list[Row] = []
    answer = append_cached(found, view, wanted)
    assert found == expected_rows(sources, wanted)
    assert all(type(row) is Row for row in found)
    assert answer == (layout.MORE if len(found) == rows_max else layout.END)
    pairs: list[tuple[bytes, bytes]] = []
    append_cached(pairs, view, wanted._replace(as_pairs=True))
    assert pairs == [(row.key, row.value) for row in found]


@given(st.lists(ROWS, min_size=2, max_size=4), st.lists(ROWS, max_size=2), st.booleans())
def test_of_equal_sequence_numbers_the_newest_source_wins(
    levels: list[list[Entry]], tables: list[list[Entry]], is_reversed: bool
) -> None:
    """As in lookups: a database has none, but a damaged one can, and both directions show the same."""
    slots = FakeReader()
    sources = [[row._replace(seq=row.seq % 3) for row in rows] for rows in (*tables, *levels)]
    sources = [in_order(rows) for rows in sources]
    below = [slots.add(rows, block_size_bytes=128) for rows in sources[len(tables) :]]
    view = view_of(slots, sources[: len(tables)], Tree(l0=tuple(below)))
    wanted = WantedRows(None, None, None, 1000, is_reversed=is_reversed)
    found: list[Row] = []
    assert append_cached(found, view, wanted) == layout.END
    assert found == expected_rows(sources, wanted)


@given(ROWS, st.integers(0, 120), st.tuples(BOUNDS, BOUNDS), st.tuples(BOUNDS, BOUNDS), st.booleans())
def test_a_run_of_views_with_projections(
    rows: list[Entry],
    cut: int,
    shown: tuple[bytes | None, bytes | None],
    asked: tuple[bytes | None, bytes | None],
    is_reversed: bool,
) -> None:
    """A key may begin in one view and go on in the next."""
    slots = FakeReader()
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    views = [slots.add(part, block_size_bytes=128) for part in parts]
    visible = KeyRange.half_open(*shown)
    views[0] = SstView(id=views[0].id, sst=views[0].sst, visible_range=visible)
    view = view_of(slots, [], Tree(compacted=(SortedRun(id=RunId(1), ssts=tuple(views)),)))
    first = [row for row in parts[0] if visible.contains(row.key)]
    wanted = WantedRows(*asked, None, 1000, is_reversed=is_reversed)
    found: list[Row] = []
    assert append_cached(found, view, wanted) == layout.END
    assert found == expected_rows([first, *parts[1:]], wanted)


@given(ROWS, st.integers(1, 30), st.booleans())
def test_reading_on_after_the_last_row(rows: list[Entry], rows_max: int, is_reversed: bool) -> None:
    slots = FakeReader()
    view = view_of(slots, [], Tree(l0=(slots.add(rows, block_size_bytes=128),)))
    wanted = WantedRows(None, None, None, rows_max, is_reversed=is_reversed)
    found: list[Row] = []
    while append_cached(found, view, wanted) == layout.MORE:
        last = found[-1].key
        wanted = wanted._replace(end=last) if is_reversed else wanted._replace(start=last + b"\0")
    assert found == expected_rows([rows], wanted._replace(start=None, end=None, rows_max=1000))


@given(ROWS, st.integers(0, 200), st.booleans())
def test_bytes_limit_the_rows(rows: list[Entry], bytes_max: int, is_reversed: bool) -> None:
    slots = FakeReader()
    view = view_of(slots, [rows], Tree())
    wanted = WantedRows(None, None, None, 1000, bytes_max, is_reversed=is_reversed)
    found: list[Row] = []
    append_cached(found, view, wanted)
    everything = expected_rows([rows], wanted)
    assert found == everything[: len(found)]
    assert sum(len(row.key) + len(row.value) for row in found[:-1]) < bytes_max or len(found) <= 1
    if len(found) < len(everything):
        assert sum(len(row.key) + len(row.value) for row in found) >= bytes_max


def test_one_call_returns_a_mebibyte_and_the_row_that_reaches_it() -> None:
    """Other tasks wait for a call."""
    slots = FakeReader()
    rows = [Entry(b"k%03d" % number, b"v" * 10_000, 1, 0) for number in range(200)]
    view = view_of(slots, [rows], Tree())
    found: list[Row] = []
    assert append_cached(found, view, WantedRows(None, None, None, 1000)) == layout.MORE
    assert len(found) == -(-(1 << 20) // 10_004)


@given(st.lists(ROWS, min_size=1, max_size=3), st.sets(st.integers(0, 20), min_size=1), st.booleans())
def test_rows_before_a_missing_block_are_complete(levels: list[list[Entry]], lost: set[int], is_reversed: bool) -> None:
    slots = FakeReader()
    sources = [[row._replace(seq=row.seq + 40 * (6 - age)) for row in rows] for age, rows in enumerate(levels)]
    views = [slots.add(rows, block_size_bytes=128) for rows in sources]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    images = {}
    for number, sst_view in enumerate(views):
        slot = slots.slot(sst_view.sst)
        for block in [block for block in slot.images if (block + number) % 5 in lost]:
            images[number, block] = slot.drop_image(block)
    wanted = WantedRows(None, None, None, 1000, is_reversed=is_reversed)
    everything = expected_rows(sources, wanted)
    for _ in range(len(images) + 1):
        found: list[Row] = []
        answer = append_cached(found, view, wanted)
        if answer == layout.END:
            break
        assert found == everything[: len(found)]
        assert answer & layout.STATUS_MASK == layout.NEED_BLOCK
        misses = last_misses(view).sources
        assert misses
        assert len(misses) == 1 or not found
        for level, _, block in misses:
            image = images.pop((level, block))
            assert image is not None
            slots.slot(views[level].sst).put_image(block, image)
    assert found == everything


def test_metadata_that_is_missing_is_named() -> None:
    slots = FakeReader()
    views = [slots.add([Entry(b"k%d" % number, b"v", number, 0)]) for number in (3, 2, 1)]
    view = view_of(slots, [[Entry(b"a", b"v", 9, 0)]], Tree(l0=tuple(views)))
    slots.slot(views[1].sst).unload()
    wanted = WantedRows(None, None, None, 10)
    answer = append_cached([], view, wanted)
    assert answer & layout.STATUS_MASK == layout.NEED_META
    assert [(level, sst) for level, sst, _ in last_misses(view).sources] == [(1, 0)]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_all_that_is_missing_at_the_start_is_named(is_reversed: bool) -> None:
    slots = FakeReader()
    views = [slots.add([Entry(b"k%d" % number, b"v", number, 0)]) for number in (4, 3, 2, 1)]
    view = view_of(slots, [[Entry(b"a", b"v", 9, 0)]], Tree(l0=tuple(views)))
    slots.slot(views[1].sst).unload()
    slots.slot(views[3].sst).drop_image(0)
    found: list[Row] = []
    append_cached(found, view, WantedRows(None, None, None, 10, is_reversed=is_reversed))
    assert found == []
    assert last_misses(view).sources == [(1, 0, 0), (3, 0, 0)]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_an_operand_ends_the_rows_before_it(is_reversed: bool) -> None:
    slots = FakeReader()
    rows = [Entry(b"a", b"1", 1, 0), Entry(b"m", b"2", 2, FLAG_MERGE), Entry(b"m", b"2", 1, 0), Entry(b"z", b"3", 1, 0)]
    view = view_of(slots, [], Tree(l0=(slots.add(rows),)))
    found: list[Row] = []
    wanted = WantedRows(None, None, None, 10, is_reversed=is_reversed)
    assert append_cached(found, view, wanted) == layout.NEED_FOLD
    assert [row.key for row in found] == [b"z" if is_reversed else b"a"]
    assert last_misses(view).sources == []
    assert append_cached(found, view, wanted._replace(max_seq=1)) == layout.END


def test_more_than_the_memory_allows_for_is_declined() -> None:
    slots = FakeReader()
    rows = [Entry(b"k", b"v", 1, 0)]
    view = view_of(slots, [], Tree(l0=tuple(slots.add(rows) for _ in range(layout.SOURCES_MAX + 1))))
    assert append_cached([], view, WantedRows(None, None, None, 10)) == layout.TOO_LARGE
    large = view_of(slots, [], Tree(l0=(slots.add([Entry(b"k", b"v" * layout.KEY_BYTES_MAX, 1, 0)]),)))
    assert append_cached([], large, WantedRows(None, None, None, 10)) == layout.TOO_LARGE


def test_calls_leave_no_objects_allocated() -> None:
    slots = FakeReader()
    rows = [Entry(b"k%03d" % number, b"v" * 50, 1 << 40, FLAG_CREATE_TS, 1 << 41) for number in range(100)]
    view = view_of(slots, [], Tree(l0=(slots.add(rows),)))

    def call() -> None:
        for is_reversed in (False, True):
            wanted = WantedRows(None, None, None, 100, is_reversed=is_reversed)
            append_cached([], view, wanted)
            append_cached([], view, wanted._replace(as_pairs=True))

    call()
    before = sys.getallocatedblocks(), sys.getrefcount(Row), sys.getrefcount(None)
    for _ in range(20):
        call()
    after = sys.getallocatedblocks(), sys.getrefcount(Row), sys.getrefcount(None)
    assert all(abs(now - then) < 500 for now, then in zip(after, before, strict=True))


@pytest.mark.parametrize("is_on", [True, False])
def test_the_search_for_cycles_is_on_or_off_as_before(is_on: bool) -> None:
    slots = FakeReader()
    view = view_of(slots, [], Tree(l0=(slots.add([Entry(b"k", b"v", 1, 0)]),)))
    try:
        (gc.enable if is_on else gc.disable)()
        append_cached([], view, WantedRows(None, None, None, 10))
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(ROWS.map(lambda rows: rows[:40]), st.data(), st.booleans())
def test_hostile_blocks_are_read_within_their_bounds(rows: list[Entry], data: st.DataObject, is_reversed: bool) -> None:
    """Any rows will do."""
    slots = FakeReader()
    sst_view = slots.add(rows, block_size_bytes=data.draw(st.sampled_from([64, 4096])))
    slot = slots.slot(sst_view.sst)
    guards = []
    for block, image in list(slot.images.items()):
        changed = bytearray(image)
        for _ in range(data.draw(st.integers(0, 3))):
            last = len(changed) - 1
            changed[data.draw(st.integers(0, last) | st.integers(max(0, last - 12), last))] = data.draw(
                st.integers(0, 255)
            )
        guards.append(GuardedPages())
        entry = int(slot.words[point_lookup.SLOT_BLOCK_TABLE]) + 16 * block
        ctypes.c_int64.from_address(entry).value = guards[-1].put(bytes(changed))
    view = view_of(slots, [], Tree(l0=(sst_view,)))
    bounds = data.draw(st.tuples(BOUNDS, BOUNDS))
    found: list[Row] = []
    answer = append_cached(found, view, WantedRows(*bounds, None, 1000, is_reversed=is_reversed))
    assert answer & layout.STATUS_MASK in (layout.END, layout.NEED_FOLD, layout.TOO_LARGE, layout.INVALID)
    keys = [row.key for row in found]
    assert keys == sorted(set(keys), reverse=is_reversed)
