"""The lookup kernel against a search through all rows."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shale.engine.read.tree_lookup import TreeLookup
from shale.format.blocks.plain import encode_block_plain
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import point_lookup as layout
from shale.sst.slot import address_of
from shale.types import (
    EVERYTHING,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    KeyRange,
    RunId,
    SortedRun,
    SstView,
    Tree,
)
from tests.examples import examples
from tests.guarded import GuardedPages, Side
from tests.paths import PYTHONPATH
from tests.unit.kernels.blocks_v1 import as_v1_reads, encode_block_v1
from tests.unit.kernels.slots import Slots
from tests.unit.kernels.strategies import KEYS, entries, in_order

SEQS = st.integers(0, 30)
PROBES = KEYS | st.sampled_from([b"user/00000010/name", b"user/000000100", b"kkk", b"z"])
ROWS = st.lists(st.builds(lambda entry, seq: entry._replace(seq=seq), entries(), SEQS), min_size=1, max_size=150).map(
    in_order
)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


def found_at(tree: TreeLookup) -> list[int]:
    return tree._counts[: layout.OUT_EXPIRE_TS + 1].tolist()


def ask(tree: TreeLookup, key: bytes, max_seq: int) -> tuple[int, Entry | None]:
    record = tree.value_record(max_seq)
    table, levels, out_address = (
        int(record[at]) for at in (layout.RECORD_TABLE, layout.RECORD_LEVELS, layout.RECORD_OUT)
    )
    status = compiled.lookup(key, max_seq, table, levels, out_address)
    if status != layout.FOUND:
        return status, None
    level, window, block, at, size, seq, flags, create_ts, expire_ts, *_ = found_at(tree)
    image = tree.levels[level].ssts[window].slot.images[block]
    return status, Entry(key, image[at : at + size], seq, flags, create_ts, expire_ts)


def newest(rows: list[Entry], key: bytes, max_seq: int, key_range: KeyRange = EVERYTHING) -> Entry | None:
    visible = (row for row in rows if row.key == key and row.seq <= max_seq and key_range.contains(key))
    return next(visible, None)


@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(PROBES, min_size=1), SEQS, st.booleans())
def test_levels_answer_in_order(levels: list[list[Entry]], probes: list[bytes], max_seq: int, filters: bool) -> None:
    slots = Slots()
    tree = TreeLookup(Tree(l0=tuple(slots.add(rows, with_filter=filters) for rows in levels)), slots)
    for key in {*probes, *(row.key for row in levels[0])}:
        expected = next(filter(None, (newest(rows, key, max_seq) for rows in levels)), None)
        assert ask(tree, key, max_seq)[1] == expected


@given(ROWS, st.integers(0, 150), PROBES, PROBES, SEQS)
@example([Entry(b"\0", b"", seq, 0, 0, 0) for seq in (1, 0)], 1, b"\0\0", b"\0\0", 1)
def test_runs_and_projected_views(rows: list[Entry], cut: int, low: bytes, high: bytes, max_seq: int) -> None:
    slots = Slots()
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    shown = KeyRange.half_open(min(low, high), max(low, high))
    views = tuple(slots.add(part) for part in parts)
    first = SstView(id=views[0].id, sst=views[0].sst, visible_range=shown)
    run = SortedRun(id=RunId(1), ssts=(first, *views[1:]))
    tree = TreeLookup(Tree(compacted=(run,)), slots)
    for key in {row.key for row in rows}:
        expected = newest(parts[0], key, max_seq, shown) or newest(
            [row for part in parts[1:] for row in part], key, max_seq
        )
        assert ask(tree, key, max_seq)[1] == expected


def test_versions_that_straddle_blocks() -> None:
    rows = [
        Entry(b"a", b"", 1, 0),
        *(Entry(b"k", b"%d" % seq, seq, 0) for seq in range(300, 0, -1)),
        Entry(b"z", b"", 1, 0),
    ]
    slots = Slots()
    tree = TreeLookup(Tree(l0=(slots.add(rows),)), slots)
    for seq in (0, 1, 150, 299, 300, 10_000):
        assert ask(tree, b"k", seq)[1] == newest(rows, b"k", seq)


def test_what_is_not_in_memory_is_asked_for() -> None:
    slots = Slots()
    views = [slots.add([Entry(b"k", b"%d" % number, number, 0)]) for number in (2, 1)]
    tree = TreeLookup(Tree(l0=tuple(views)), slots)
    slots.slot(views[0].sst).drop_image(0)
    assert ask(tree, b"k", 9)[0] == layout.NEED_BLOCK
    assert found_at(tree)[layout.OUT_LEVEL] == 0
    slot = slots.slot(views[0].sst)
    meta = slot.meta
    assert meta is not None
    slot.unload()
    assert ask(tree, b"k", 9)[0] == layout.NEED_META
    slot.load(meta)
    assert slot.tables_bytes == 0
    assert ask(tree, b"k", 9)[0] == layout.NEED_BLOCK
    assert found_at(tree)[layout.OUT_BLOCK] == 0


def ask_value(tree: TreeLookup, key: bytes, max_seq: int) -> bytes | int | None:
    record = tree.value_record(max_seq)
    return compiled.lookup_value(key, address_of(record))


def counted(tree: TreeLookup) -> list[int]:
    return tree._counts[slice(*layout.OUT_COUNTS)].tolist()


def assert_many_as_one_by_one(tree: TreeLookup, keys: list[bytes], max_seq: int) -> list[bytes | int | None]:
    """Many keys in one call have the values, and make the counts, that they have one by one."""
    before = counted(tree)
    expected = [ask_value(tree, key, max_seq) for key in keys]
    between = counted(tree)
    answers, is_all = tree.find_values(keys, max_seq)
    assert answers == expected
    assert is_all == (not any(isinstance(value, int) for value in expected))
    assert np.subtract(counted(tree), between).tolist() == np.subtract(between, before).tolist()
    return answers


def test_many_keys_in_one_call() -> None:
    rows = [Entry(b"k%03d" % number, b"v%d" % number * (number % 7), 1, 0) for number in range(0, 400, 2)]
    slots = Slots()
    tree = TreeLookup(Tree(l0=(slots.add(rows),)), slots)
    values = {row.key: row.value for row in rows}
    keys = [b"k%03d" % number for number in range(400)] * 2
    assert assert_many_as_one_by_one(tree, keys, 9) == [values.get(key) for key in keys]


@given(
    st.lists(ROWS, min_size=1, max_size=4),
    st.lists(PROBES, min_size=1, max_size=80),
    SEQS,
    st.booleans(),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 40))),
    st.sets(st.integers(0, 3), max_size=1),
)
def test_many_keys_are_as_one_by_one(
    levels: list[list[Entry]],
    probes: list[bytes],
    max_seq: int,
    filters: bool,
    lost: set[tuple[int, int]],
    unloaded: set[int],
) -> None:
    """Also where versions straddle blocks, and blocks or metadata are not in memory."""
    slots = Slots()
    views = [slots.add(rows, block_size_bytes=128, with_filter=filters) for rows in levels]
    tree = TreeLookup(Tree(l0=tuple(views)), slots)
    for number, block in lost:
        if number < len(views) and block in slots.slot(views[number].sst).images:
            slots.slot(views[number].sst).drop_image(block)
    for number in unloaded:
        if number < len(views):
            slots.slot(views[number].sst).unload()
    assert_many_as_one_by_one(tree, [*probes, *(row.key for rows in levels for row in rows)], max_seq)


def test_an_operand_and_what_is_malformed_are_for_others_to_decide() -> None:
    rows = [Entry(b"a", b"1", 1, FLAG_MERGE), Entry(b"b", b"", 1, FLAG_TOMBSTONE), Entry(b"c", b"3", 1, 0)]
    slots = Slots()
    views = [slots.add(rows), slots.add([Entry(b"d", b"4", 0, 0)])]
    tree = TreeLookup(Tree(l0=tuple(views)), slots)
    slots.slot(views[1].sst).put_image(0, b"\xff" * 40)
    expected = [layout.FOUND, None, b"3", layout.CORRUPT, None]
    assert assert_many_as_one_by_one(tree, [b"a", b"b", b"c", b"d", b"e" * 100], 9) == expected


def test_the_place_of_a_missing_part_ascends_along_the_search() -> None:
    slots = Slots()
    rows = [Entry(b"%03d" % number, b"v" * 50, 1, 0) for number in range(20)]
    below = [Entry(b"000", b"v", 0, 0), Entry(b"zzz", b"v", 0, 0)]
    views = [slots.add(rows, block_size_bytes=128, with_filter=False), slots.add(below)]
    tree = TreeLookup(Tree(l0=tuple(views)), slots)
    first = slots.slot(views[0].sst)
    images = dict(first.images)
    for block in images:
        first.drop_image(block)
    slots.slot(views[1].sst).unload()
    missing = np.full(4, -1, np.int64)
    answers, _ = tree.find_values([b"0185", b"010", b"000", b"000"], 9, missing)
    assert answers == [layout.NEED_BLOCK] * 4
    blocks = [int(place) - 1 for place in missing]
    assert blocks == [18, 10, 0, 0]
    for block in range(len(first.touched)):
        first.put_image(block, images[block])
    answers, _ = tree.find_values([b"0185", b"010"], 9, missing)
    assert answers == [layout.NEED_META, b"v" * 50]
    assert int(missing[0]) == 1 << layout.PLACE_VIEW_BITS + layout.PLACE_BLOCK_BITS


def test_what_is_no_key_is_refused() -> None:
    slots = Slots()
    tree = TreeLookup(Tree(l0=(slots.add([Entry(b"k", b"v", 1, 0)]),)), slots)
    record = tree.value_record(9)
    with pytest.raises(TypeError):
        compiled.lookup_value("k", address_of(record))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tree.find_values([b"k", "k"], 9)  # type: ignore[list-item]
    with pytest.raises(SystemError):
        tree.find_values((b"k", b"k"), 9)  # type: ignore[arg-type]
    assert tree.find_values([b"k", b"k\0", b""], 9) == ([b"v", None, None], True)


def test_calls_leave_no_objects_allocated() -> None:
    slots = Slots()
    tree = TreeLookup(Tree(l0=(slots.add([Entry(b"k", b"v" * 50, 1, 0)]),)), slots)
    record, keys = tree.value_record(9), [b"k", b"absent"] * 50
    address = address_of(record)

    def call() -> None:
        for key in keys:
            compiled.lookup_value(key, address)
        tree.find_values(keys, 9)

    call()
    before = sys.getallocatedblocks(), sys.getrefcount(keys[0]), sys.getrefcount(None)
    for _ in range(20):
        call()
    after = sys.getallocatedblocks(), sys.getrefcount(keys[0]), sys.getrefcount(None)
    assert all(abs(now - then) < 500 for now, then in zip(after, before, strict=True))


def find(image: bytes, version: int, key: bytes, max_seq: int, side: Side = Side.AFTER) -> tuple[int, Entry | None]:
    """Search a block that lies next to a page without any right: a read outside of it is a crash."""
    from shale.kernels.source.point_lookup.block import IN_BLOCK, find_in_block

    out = np.zeros(layout.OUT_WORDS, np.int64)
    pages = GuardedPages(side)
    status = find_in_block(pages.put(image), len(image), version, pages.put(key), len(key), max_seq, address_of(out))
    if status != IN_BLOCK:
        return status, None
    _, _, _, at, size, seq, flags, create_ts, expire_ts, *_ = out.tolist()
    assert size == 0 or 0 <= at < at + size <= len(image)
    return status, Entry(key, image[at : at + size], seq, flags, create_ts, expire_ts)


@pytest.mark.slow
@given(ROWS, PROBES, SEQS, st.sampled_from([1, 2]))
def test_a_block_of_either_version(rows: list[Entry], probe: bytes, max_seq: int, version: int) -> None:
    image = encode_block_plain(rows) if version == 2 else encode_block_v1(rows)
    if len(image) > 65_535:
        return
    rows = rows if version == 2 else [as_v1_reads(row) for row in rows]
    for key in {probe, *(row.key for row in rows)}:
        assert find(image, version, key, max_seq)[1] == newest(rows, key, max_seq)


@settings(max_examples=examples(100))
@given(ROWS.map(lambda rows: rows[:20]), st.data(), st.sampled_from([1, 2]), st.sampled_from(Side))
def test_hostile_blocks_are_searched_within_their_bounds(
    rows: list[Entry], data: st.DataObject, version: int, side: Side
) -> None:
    """Any answer will do."""
    image = bytearray(encode_block_plain(rows) if version == 2 else encode_block_v1(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(image) - 1) | st.integers(max(0, len(image) - 12), len(image) - 1))
        image[place] = data.draw(st.integers(0, 255))
    for key in {row.key for row in rows}:
        status, _ = find(bytes(image), version, key, 30, side)
        assert status in (layout.CORRUPT, 0, 1, 2)


@given(st.binary(max_size=80), st.binary(min_size=1, max_size=4), st.sampled_from([1, 2]), st.sampled_from(Side))
def test_noise_is_searched_within_its_bounds(image: bytes, key: bytes, version: int, side: Side) -> None:
    status, _ = find(image, version, key, 30, side)
    assert status in (layout.CORRUPT, 0, 1, 2)


@pytest.mark.slow
def test_a_block_that_is_said_to_be_longer_than_it_is_ends_the_process() -> None:
    """What the tests of hostile blocks rely on."""
    program = (
        "from tests.guarded import GuardedPages\n"
        "from tests.unit.kernels.point_lookup.test_lookup import *\n"
        "class Longer(bytes):\n"
        "    def __len__(self): return super().__len__() + 64\n"
        "put = GuardedPages.put\n"
        "GuardedPages.put = lambda self, data: put(self, bytes(data))\n"
        "find(Longer(b'k' * 40), 2, b'k', 30)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": PYTHONPATH}, check=False)
    assert done.returncode == -signal.SIGSEGV
