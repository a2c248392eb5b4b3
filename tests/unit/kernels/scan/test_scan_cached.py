"""The kernel of scans against a merge in plain Python, in both directions."""

import ctypes
import gc
import mmap
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.cached_rows import WantedRows, append_cached, last_misses
from shale.kernels.columns import address_of
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout import point_lookup
from shale.kernels.layout import scan as layout
from shale.kernels.rows import rows_from_entries
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    KeyRange,
    Manifest,
    Row,
    RunId,
    Seq,
    SortedRun,
    SstView,
    Tree,
)
from tests.unit.kernels.slots import Slots
from tests.unit.kernels.strategies import KEYS, entries, in_order

SEQS = st.integers(0, 30)
BOUNDS = st.none() | KEYS | st.sampled_from([b"", b"kkk", b"z"])
SORTS = st.builds(lambda entry, seq: entry._replace(seq=seq, flags=entry.flags & ~FLAG_MERGE), entries(), SEQS)
ROWS = st.lists(SORTS, min_size=1, max_size=120).map(in_order)
NOW_MS = st.none() | st.integers(0, 1 << 40)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


class FakeReader(Slots):
    """A reader of what is in memory."""

    def follow(self, manifest: Manifest) -> None:
        """Take note of nothing."""


def view_of(slots: FakeReader, tables: Sequence[Sequence[Entry]], tree: Tree) -> SuperVersion:
    manifest = Manifest(tree=tree, last_l0_seq=Seq(1 << 40))
    return SuperVersion(
        manifest,
        [Memtable.from_rows(rows_from_entries(rows)) for rows in tables],
        slots,  # type: ignore[arg-type]
        ReadOptions(),
    )


def expected_rows(sources: Sequence[Sequence[Entry]], wanted: WantedRows) -> list[Row]:
    """Merge in plain Python."""
    newest: dict[bytes, Entry] = {}
    for rows in sources:
        for row in rows:
            is_inside = (wanted.start is None or row.key >= wanted.start) and (
                wanted.end is None or row.key < wanted.end
            )
            is_visible = wanted.max_seq is None or row.seq <= wanted.max_seq
            if is_inside and is_visible and (row.key not in newest or row.seq > newest[row.key].seq):
                newest[row.key] = row
    rows = []
    for key in sorted(newest, reverse=wanted.is_reversed):
        row = newest[key]
        expires = row.flags & FLAG_EXPIRE_TS and wanted.now_ms is not None and row.expire_ts <= wanted.now_ms
        if not row.flags & FLAG_TOMBSTONE and not expires:
            times = (
                row.create_ts if row.flags & FLAG_CREATE_TS else None,
                row.expire_ts if row.flags & FLAG_EXPIRE_TS else None,
            )
            rows.append(Row(row.key, row.value, row.seq, *times))
    return rows[: wanted.rows_max]


@settings(max_examples=200)
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


def windows_of(view: SuperVersion, spans: dict[int, tuple[int, int]], keep: list[object]) -> int:
    """Return the address of windows with these blocks of each level, as they are stored; ``keep`` holds them."""
    keep.clear()
    levels = view.trees.lookups[0].levels
    words = np.zeros((len(levels), layout.WINDOW_WORDS), np.int64)
    for number, (first, last) in spans.items():
        slot = levels[number].slots[0]
        assert slot.meta is not None
        images = STORED[id(slot)][first:last]
        data = GuardedPages(sum(map(len, images)))
        words[number] = 0, first, last, data.put(b"".join(images)), address_of(slot.meta.index.offsets)
        keep.append(data)
    keep.append(words)
    return address_of(words)


STORED: dict[int, list[bytes]] = {}
"""The blocks of slots with their checksums."""


def without_images(slots: FakeReader, views: Sequence[SstView]) -> None:
    """Drop the blocks of SSTs from memory."""
    STORED.clear()
    for view in views:
        slot = slots.slot(view.sst)
        images = [slot.drop_image(block) or b"" for block in sorted(slot.images)]
        STORED[id(slot)] = [image + crc32(image).to_bytes(4, "big") for image in images]


@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(1, 4), st.tuples(BOUNDS, BOUNDS), st.booleans())
def test_blocks_in_windows_are_read_in_place(
    levels: list[list[Entry]], size: int, bounds: tuple[bytes | None, bytes | None], is_reversed: bool
) -> None:
    slots, keep = FakeReader(), list[object]()
    sources = [[row._replace(seq=row.seq + 40 * (6 - age)) for row in rows] for age, rows in enumerate(levels)]
    views = [slots.add(rows, block_size_bytes=128) for rows in sources]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    without_images(slots, views)
    wanted = rest = WantedRows(*bounds, None, 1000, is_reversed=is_reversed)
    found: list[Row] = []
    spans: dict[int, tuple[int, int]] = {}
    for _ in range(1000):
        answer = append_cached(found, view, rest, windows=windows_of(view, spans, keep))
        if answer == layout.END:
            break
        misses = last_misses(view)
        assert answer & layout.STATUS_MASK == layout.NEED_BLOCK
        assert misses.sources
        if found:
            last_key = found[-1].key
            rest = wanted._replace(end=last_key) if is_reversed else wanted._replace(start=last_key + b"\0")
        for level, _, block in misses.sources:
            slot = slots.slot(views[level].sst)
            assert slot.meta is not None
            separators = slot.meta.index.separators
            # A call begins after the last row again, so it needs the blocks from there on.
            first, last = spans.get(level, (block, block + 1))
            if is_reversed:
                last = last if rest.end is None else max(bisect_right(separators, rest.end), block + 1)
                spans[level] = max(block + 1 - size, 0), last
            else:
                first = first if rest.start is None else min(max(bisect_left(separators, rest.start) - 1, 0), block)
                spans[level] = first, min(block + size, len(separators))
    assert found == expected_rows([*sources], wanted)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_is_left_is_told_with_a_block_that_is_missing(is_reversed: bool) -> None:
    slots = FakeReader()
    rows = [Entry(b"k%04d" % number, b"v" * 10, 1, 0) for number in range(100)]
    views = [slots.add(rows, block_size_bytes=256)]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    slot = slots.slot(views[0].sst)
    middle = len(slot.images) // 2
    slot.drop_image(middle)
    found: list[Row] = []
    wanted = WantedRows(None, None, None, 1000, 5000, is_reversed=is_reversed)
    assert append_cached(found, view, wanted, 1000) & layout.STATUS_MASK == layout.NEED_BLOCK
    misses = last_misses(view)
    assert misses.sources == [(0, 0, middle)]
    assert misses.bytes_left == 5000 - 15 * len(found)
    assert 1000 - len(found) - 2 <= misses.walk_left <= 1000 - len(found)


def test_a_damaged_block_in_a_window_is_no_rows() -> None:
    slots, keep = FakeReader(), list[object]()
    views = [slots.add([Entry(b"k%04d" % number, b"v", 1, 0) for number in range(50)], block_size_bytes=4096)]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    without_images(slots, views)
    stored = STORED[id(slots.slot(views[0].sst))]
    stored[0] = stored[0][:20] + bytes([stored[0][20] ^ 1]) + stored[0][21:]
    found: list[Row] = []
    windows = windows_of(view, {0: (0, 1)}, keep)
    assert append_cached(found, view, WantedRows(None, None, None, 100), windows=windows) == layout.INVALID
    assert found == []


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


class GuardedPages:
    """Memory that ends at a page without the right to read: a read past the end is a crash."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._size = -(-size // page) * page
        self._memory = mmap.mmap(-1, self._size + page)
        self._base = address_of(np.frombuffer(self._memory, np.uint8))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self._base + self._size), page, 0) == 0

    def put(self, data: bytes) -> int:
        """Put data to the end and return its address."""
        start = self._size - len(data)
        self._memory[start : self._size] = data
        return self._base + start


@settings(max_examples=300)
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
        guards.append(GuardedPages(len(changed)))
        entry = int(slot.words[point_lookup.SLOT_BLOCK_TABLE]) + 16 * block
        ctypes.c_int64.from_address(entry).value = guards[-1].put(bytes(changed))
    view = view_of(slots, [], Tree(l0=(sst_view,)))
    bounds = data.draw(st.tuples(BOUNDS, BOUNDS))
    found: list[Row] = []
    answer = append_cached(found, view, WantedRows(*bounds, None, 1000, is_reversed=is_reversed))
    assert answer & layout.STATUS_MASK in (layout.END, layout.NEED_FOLD, layout.TOO_LARGE, layout.INVALID)
    keys = [row.key for row in found]
    assert keys == sorted(set(keys), reverse=is_reversed)
