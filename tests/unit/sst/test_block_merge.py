"""Merging stored blocks against merging columns: the same rows, and the same bytes."""

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.blocks.decoder import StoredBlocks, open_blocks
from shale.format.blocks.plain import decode_block_plain, encode_block_plain
from shale.format.blocks.section import seal_section
from shale.iter.merge_filter_plain import merge_filter_plain
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_rules import MergeRules
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry, KeyRange
from tests.examples import examples
from tests.unit.iter.merge_inputs import FEW_KEYS, RULES, SEQS
from tests.unit.kernels.blocks_v1 import as_v1_reads, encode_block_v1
from tests.unit.kernels.strategies import KEYS, SORTED_ROWS, entries, in_order
from tests.unit.sst.stored_runs import FILES, RANGES, merged, stored

SOURCES = st.lists(
    st.lists(st.builds(lambda entry, seq: entry._replace(seq=seq), entries(FEW_KEYS | KEYS), SEQS), min_size=1).map(
        in_order
    ),
    max_size=5,
)
OPTIONS = SstOptions(block_size_bytes=200, min_filter_keys=2)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


def built(rows: list[Entry], options: SstOptions, until_bytes: int) -> FILES:
    """Return the files that a merge of columns writes."""
    columns, files = rows_from_entries(rows), FILES()
    while len(columns):
        builder = SstBuilder(options)
        taken = builder.add(columns, until_bytes=until_bytes)
        parts, info = builder.finish()
        files.append((b"".join(parts), info))
        columns = columns.slice(taken, len(columns))
    return files


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(SOURCES, RULES, st.integers(1, 4), st.sampled_from([0, 400, 10**9]))
def test_merged_blocks_are_those_of_merged_rows(
    sources: list[list[Entry]], rules: MergeRules, span: int, until_bytes: int
) -> None:
    spans = [stored(rows, span=span) for rows in sources]
    rows = list(merge_filter_plain(sources, rules))
    assert merged(spans, rules, OPTIONS, until_bytes) == built(rows, OPTIONS, until_bytes)


@given(
    st.lists(SORTED_ROWS, min_size=1, max_size=3),
    st.sampled_from(Compression),
    st.sampled_from(Compression),
    st.sampled_from([0, 300, 10**9]),
)
def test_compressed_blocks(
    sources: list[list[Entry]], before: Compression, after: Compression, until_bytes: int
) -> None:
    options = SstOptions(block_size_bytes=200, compression=after)
    rules = MergeRules(newest_only=True, min_seq=20)
    spans = [stored(rows, compression=before) for rows in sources]
    rows = list(merge_filter_plain(sources, rules))
    assert merged(spans, rules, options, until_bytes) == built(rows, options, until_bytes)


@given(st.lists(SORTED_ROWS, min_size=1, max_size=3), RULES)
def test_blocks_of_version_1(sources: list[list[Entry]], rules: MergeRules) -> None:
    rows = list(merge_filter_plain([list(map(as_v1_reads, rows)) for rows in sources], rules))
    spans = [stored(rows, version=1) for rows in sources]
    assert merged(spans, rules, OPTIONS, 10**9) == built(rows, OPTIONS, 10**9)


@given(st.lists(SORTED_ROWS, min_size=1, max_size=3), RANGES, st.integers(1, 4))
def test_rows_out_of_range_are_left_out(sources: list[list[Entry]], visible: KeyRange, span: int) -> None:
    rows = list(
        merge_filter_plain([[row for row in rows if visible.contains(row.key)] for rows in sources], MergeRules())
    )
    spans = [stored(rows, span=span, visible=visible) for rows in sources]
    assert merged(spans, MergeRules(), OPTIONS, 10**9) == built(rows, OPTIONS, 10**9)


@settings(max_examples=examples(100))
@given(SORTED_ROWS.map(lambda rows: rows[:6]), st.data(), st.sampled_from([1, 2]))
def test_hostile_images_meet_the_twins_verdict(rows: list[Entry], data: st.DataObject, version: int) -> None:
    image = bytearray(encode_block_plain(rows) if version == 2 else encode_block_v1(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        image[data.draw(st.integers(0, min(len(image) - 1, 200)))] = data.draw(st.integers(0, 255))
    section = seal_section(bytes(image), Compression.NONE)
    blocks = open_blocks(
        section, np.array([1000, 1000 + len(section)]), version=version, compression=Compression.NONE, path="x.sst"
    )
    try:
        expected = decode_block_plain(bytes(image), version)
    except CorruptionError:
        expected = []
    if not expected or in_order(expected) != expected:
        with pytest.raises(CorruptionError) as caught:
            merged([[blocks]], MergeRules(), OPTIONS, 10**9)
        assert caught.value.path == "x.sst"
        assert 1000 <= (caught.value.offset or 0) <= 1000 + len(section)
    else:
        assert merged([[blocks]], MergeRules(), OPTIONS, 10**9) == built(expected, OPTIONS, 10**9)


def test_a_flipped_bit_is_reported_with_its_block() -> None:
    blocks = stored([Entry(b"k%03d" % number, bytes(60), 1, 0) for number in range(30)], span=100)[0]
    image = blocks.image.copy()
    place = int(blocks.bounds[3] - blocks.bounds[0])
    image[place + 5] ^= 1
    broken = StoredBlocks(
        image=image, bounds=blocks.bounds, places=blocks.places, has_checksums=True, version=2, path="x.sst"
    )
    with pytest.raises(CorruptionError, match=r"x\.sst at byte \d+: checksum mismatch") as caught:
        merged([[broken]], MergeRules(), OPTIONS, 10**9)
    assert caught.value.offset == blocks.places[3]


def test_what_lies_after_the_range_must_not_come_back_into_it() -> None:
    """Checksums are valid, the order is not: rows after the misplaced one would be lost silently."""
    rows = [Entry(b"a", b"", 1, 0), Entry(b"z", b"", 1, 0), Entry(b"b", b"", 1, 0)]
    with pytest.raises(CorruptionError, match="out of order"):
        merged([stored(rows, visible=KeyRange.half_open(b"a", b"c"))], MergeRules(), OPTIONS, 10**9)


def test_many_tombstones_of_one_key_wait_for_what_is_below() -> None:
    tombstones = [Entry(b"k" * 300, b"", seq, FLAG_TOMBSTONE | 4, 7) for seq in range(3000, 1, -1)]
    rules = MergeRules(newest_only=True, min_seq=1, drop_tombstones=True)
    assert merged([stored(tombstones)], rules, OPTIONS, 10**9) == []
    below = Entry(b"k" * 300, b"v", 1, 0)
    spans = [stored(tombstones), stored([below])]
    assert merged(spans, rules, OPTIONS, 10**9) == built([*tombstones, below], OPTIONS, 10**9)


def test_values_keys_and_numbers_of_rows_beyond_every_buffer() -> None:
    """A value larger than the output, keys longer than the table has space for, more rows than hashes."""
    rows = [Entry(b"%05d" % number, b"", 1, 0) for number in range(40_000)]
    rows += [Entry(b"k" * 65_535, b"v", 1, 0), Entry(b"k" * 65_534 + b"l", b"w" * (6 << 20), 1, FLAG_MERGE)]
    rows += [Entry(b"l" * 65_535, b"x", 1, 0)]
    assert merged([stored(rows, span=10**9)], MergeRules(), OPTIONS, 10**9) == built(rows, OPTIONS, 10**9)


@pytest.mark.parametrize("key_len", [8, 300])
def test_notes_of_many_small_reads_fill_up(key_len: int) -> None:
    """Thousands of blocks, of which each call sees a few: their table, or the space for keys, fills up."""
    rows = [Entry(b"%0*d" % (key_len, number), b"v" * 100, 1, 0) for number in range(3000)]
    sources = [rows[0::2], rows[1::2]]
    files = merged([stored(source, span=2) for source in sources], MergeRules(), OPTIONS, 10**9)
    assert files == built(rows, OPTIONS, 10**9)
    assert len(files) == 1


def test_room_for_keys_after_huge_values_takes_no_memory() -> None:
    """The space for keys follows the size of blocks; a copy of that space took a second and three times the value."""
    from shale.format.blocks.merge import BlockMerge

    sizes = (30 << 20, 70 << 20)
    spans = [stored([Entry(b"k%d" % size, bytes(size), 1, 0)])[0] for size in sizes]
    merge = BlockMerge(2, MergeRules())
    assert merge.begin(0, spans[0])
    before = _resident_bytes()
    assert merge.begin(1, spans[1])
    assert _resident_bytes() - before < 20 << 20


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


def test_what_expired_is_counted() -> None:
    from shale.format.blocks.merge import BlockMerge

    rows = [Entry(b"a", b"v", 1, 2, 0, 5), Entry(b"b", b"v", 1, 2 | FLAG_MERGE, 0, 5), Entry(b"c", b"v", 1, 2, 0, 6)]
    merge = BlockMerge(1, MergeRules(newest_only=True, now_tick=5))
    merge.begin_file()
    assert merge.begin(0, stored(rows)[0])
    assert SstBuilder(OPTIONS).merge(merge) is MergeStatus.NEED_INPUT
    assert merge.take_expired() == (1, 1)
    assert merge.take_expired() == (0, 0)
