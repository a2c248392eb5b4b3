"""The SST builder writes the same file for any chunks and by both implementations."""

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError, InvalidRequestError
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.section import open_section
from shale.format.sst.filter import decode_filters
from shale.format.sst.index import BlockIndex, decode_index
from shale.format.sst.info import decode_trailer
from shale.format.sst.stats import decode_stats
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.sst.builder import SstBuilder, build_sst
from shale.sst.options import SstOptions
from shale.sst.wal_builder import build_wal_sst
from shale.types import FLAG_CREATE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry, SstInfo, SstType
from tests.unit.kernels.strategies import ANY_ROWS, SORTED_ROWS

PLAIN_SWITCHES = (
    "shale.format.blocks.decoder",
    "shale.format.blocks.writer",
    "shale.format.sst.bloom",
    "shale.sst.builder",
)


def plainly(patch: pytest.MonkeyPatch) -> None:
    for module in PLAIN_SWITCHES:
        patch.setattr(f"{module}.use_kernels", lambda: False)


def test_compressed_blocks_are_handed_out_together() -> None:
    """Each part costs a write; parts of a few hundred bytes dominated the time of a compaction."""
    builder = SstBuilder(SstOptions(compression=Compression.ZSTD))
    builder.add(rows_from_entries([Entry(b"%06d" % number, bytes(100), 1, 0) for number in range(10_000)]))
    parts = builder.take_parts()
    assert len(parts) == 1
    assert len(parts[0]) == builder.data_len > 10_000


def test_blocks_are_not_larger_than_their_offsets_can_say() -> None:
    """Offsets have 16 bits; kernels would truncate larger ones and lookups would miss rows."""
    with pytest.raises(InvalidRequestError, match="block_size_bytes"):
        SstOptions(block_size_bytes=65_537)


def opened(data: bytes) -> tuple[SstInfo, BlockIndex, Rows]:
    info, version = decode_trailer(data, object_size=len(data))
    stored = data[info.index_offset : info.index_offset + info.index_len]
    index = decode_index(open_section(stored, info.compression), data_len=info.data_len)
    blocks = memoryview(data)[: info.data_len]
    return info, index, decode_blocks(blocks, index.offsets, version=version, compression=info.compression, path="x")


def in_pieces(rows: Rows, sizes: list[int], options: SstOptions) -> tuple[bytes, SstInfo]:
    builder = SstBuilder(options)
    parts = []
    at = 0
    for size in [*sizes, len(rows)]:
        builder.add(rows.slice(min(at, len(rows)), min(at + size, len(rows))))
        parts += builder.take_parts()
        at += size
    rest, info = builder.finish()
    return b"".join([*parts, *rest]), info


@given(
    SORTED_ROWS, st.lists(st.integers(0, 30), max_size=5), st.sampled_from([1024, 4096]), st.sampled_from(Compression)
)
def test_pieces_and_paths_give_one_file(
    entries: list[Entry], sizes: list[int], block_size: int, compression: Compression
) -> None:
    options = SstOptions(block_size_bytes=block_size, compression=compression, min_filter_keys=5)
    rows = rows_from_entries(entries)
    data, info = build_sst(rows, options)
    assert in_pieces(rows, sizes, options) == (data, info)
    with pytest.MonkeyPatch.context() as patch:
        plainly(patch)
        assert in_pieces(rows, sizes, options) == (data, info)


@given(SORTED_ROWS, st.integers(0, 120))
def test_the_path_may_change_on_the_way(entries: list[Entry], cut: int) -> None:
    """A builder starts in plain Python and continues with kernels for larger input."""
    rows = rows_from_entries(entries)
    options = SstOptions(block_size_bytes=1024)
    builder = SstBuilder(options)
    with pytest.MonkeyPatch.context() as patch:
        plainly(patch)
        builder.add(rows.slice(0, min(cut, len(rows))))
    builder.add(rows.slice(min(cut, len(rows)), len(rows)))
    parts, info = builder.finish()
    assert (b"".join(parts), info) == build_sst(rows, options)


@given(SORTED_ROWS, st.sampled_from(Compression))
def test_everything_comes_back(entries: list[Entry], compression: Compression) -> None:
    data, info = build_sst(rows_from_entries(entries), SstOptions(compression=compression, min_filter_keys=1))
    read_info, index, rows = opened(data)
    assert read_info == info
    assert entries_from_rows(rows) == entries
    assert (info.first_entry, info.last_entry) == (entries[0].key, entries[-1].key)
    stats = decode_stats(open_section(data[info.stats_offset : info.stats_offset + info.stats_len], compression))
    assert stats.num_deletes == sum(entry.is_tombstone for entry in entries)
    assert stats.num_merges == sum(entry.is_merge for entry in entries)
    assert stats.num_rows == len(entries)
    assert stats.raw_key_size == sum(len(entry.key) for entry in entries)
    assert stats.raw_val_size == sum(len(entry.value) for entry in entries)
    assert len(stats.blocks) == len(index)
    filter_block = data[info.filter_offset : info.filter_offset + info.filter_len]
    filters = decode_filters(open_section(filter_block, compression), info.filter_format)
    assert all(filters.may_contain_key(entry.key) for entry in entries)


@given(SORTED_ROWS, st.integers(0, 4000), st.booleans())
def test_a_limit_splits_between_keys_only(entries: list[Entry], limit: int, plain: bool) -> None:
    rows = rows_from_entries(entries)
    files: list[list[Entry]] = []
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            plainly(patch)
        while len(rows):
            builder = SstBuilder(SstOptions(block_size_bytes=1024))
            taken = builder.add(rows, until_bytes=limit)
            assert taken
            assert taken == len(rows) or builder.data_len > limit
            parts, _ = builder.finish()
            files.append(entries_from_rows(opened(b"".join(parts))[2]))
            rows = rows.slice(taken, len(rows))
    assert [entry for file in files for entry in file] == entries
    assert all(left[-1].key < right[0].key for left, right in pairwise(files))


def test_a_limit_counts_compressed_bytes() -> None:
    rows = rows_from_entries([Entry(b"k%06d" % number, b"v" * 100, 1, 0) for number in range(5000)])
    builder = SstBuilder(SstOptions(compression=Compression.ZSTD))
    taken = builder.add(rows, until_bytes=10_000)
    assert 10_000 < builder.data_len < 11_000
    assert 0 < taken < len(rows)


@given(ANY_ROWS.map(lambda rows: sorted(rows, key=lambda row: row.seq)), st.sampled_from(Compression))
def test_wal_files_keep_the_order_of_commits(entries: list[Entry], compression: Compression) -> None:
    data = build_wal_sst(rows_from_entries(entries), compression)
    info, index, rows = opened(data)
    assert entries_from_rows(rows) == entries
    assert info.sst_type is SstType.WAL
    assert (info.filter_len, info.stats_len, info.last_entry) == (0, 0, None)
    assert index.first_key(0) == info.first_entry == entries[0].seq.to_bytes(8, "big")
    with pytest.MonkeyPatch.context() as patch:
        plainly(patch)
        assert build_wal_sst(rows_from_entries(entries), compression) == data


EXTREMES = [
    Entry(b"\0", b"", 2**64 - 1, 0),
    Entry(b"a" * 70_000, b"", 3, FLAG_TOMBSTONE | FLAG_CREATE_TS, -1),
    Entry(b"a" * 70_000 + b"b", b"v" * 300_000, 3, FLAG_MERGE),
    *(Entry(b"k", b"%d" % seq, seq, FLAG_CREATE_TS, seq) for seq in range(300, 0, -1)),
    Entry(b"z" * (1 << 20), b"", 1, 0),
    Entry(b"z" * (1 << 20) + b"\xff", b"end", 1, 0),
]


@pytest.mark.parametrize("plain", [False, True])
def test_huge_keys_and_values_and_many_versions(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_from_entries(EXTREMES)
    wanted = build_sst(rows, SstOptions(block_size_bytes=1024, min_filter_keys=0))
    if plain:
        plainly(monkeypatch)
    data, info = build_sst(rows, SstOptions(block_size_bytes=1024, min_filter_keys=0))
    assert (data, info) == wanted
    _, index, read = opened(data)
    assert entries_from_rows(read) == EXTREMES
    assert len([key for key, _ in groupby(index.first_key(block) for block in range(len(index)))]) < len(index)
    assert [index.block_range_for_key(b"k")[0] > 0, index.block_range_for_key(b"k")[1] < len(index)] == [True, True]


@pytest.mark.parametrize("plain", [False, True])
def test_rows_out_of_order_are_refused(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        plainly(monkeypatch)
    builder = SstBuilder(SstOptions())
    builder.add(rows_from_entries([Entry(b"b", b"", 1, 0)]))
    with pytest.raises(CorruptionError, match="order"):
        builder.add(rows_from_entries([Entry(b"a", b"", 1, 0)]))


def test_memory_is_bounded_by_what_is_not_taken() -> None:
    builder = SstBuilder(SstOptions(filter_policies=()))
    for start in range(0, 40_000, 1000):
        builder.add(rows_from_entries([Entry(b"k%08d" % (start + i), b"v" * 500, 1, 0) for i in range(1000)]))
        assert sum(map(len, builder.take_parts())) >= 400_000
    assert builder.data_len > 20_000_000
    parts, _ = builder.finish()
    assert sum(map(len, parts)) < 1_000_000


def test_concat_of_slices_is_written_like_the_whole() -> None:
    rows = rows_from_entries([Entry(b"k%04d" % number, b"v", 1, 0) for number in range(3000)])
    pieces = concat_rows([rows.slice(0, 7), rows.slice(7, 3000)])
    assert build_sst(pieces, SstOptions()) == build_sst(rows, SstOptions())
