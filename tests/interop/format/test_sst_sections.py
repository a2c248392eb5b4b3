"""Footers, index, stats and filter blocks of SlateDB 0.17.0, decoded and encoded byte for byte."""

from pathlib import Path

import pytest

from shale.format.blocks.plain import decode_block_plain
from shale.format.blocks.section import open_section, seal_section
from shale.format.sst.filter import FilterHashes, encode_filters, hash_keys
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.format.sst.index import BlockIndex, decode_index, encode_index
from shale.format.sst.info import decode_trailer, encode_trailer
from shale.format.sst.stats import decode_stats, encode_stats
from shale.kernels.rows import Rows
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry, FilterFormat, SstInfo, SstType
from tests.golden_files import golden, label
from tests.interop.sst_sections import Opened, open_sst, plain_rows

P4 = FixedPrefix("p4", 4)
POLICIES = {
    "prefix_filter": (
        BloomPolicy(12, P4),
        BloomPolicy(8, P4, whole_key=False),
        BloomPolicy(16),
    ),
}
SSTS = [path for path in golden("*.sst") if path.stat().st_size]


def opened(path: Path) -> Opened:
    return open_sst(path.read_bytes(), str(path))


@pytest.mark.parametrize("path", SSTS, ids=label)
def test_footer_and_trailer(path: Path) -> None:
    sst = opened(path)
    tail = sst.data[sst.footer_offset :]
    assert encode_trailer(sst.info, offset=sst.footer_offset, version=sst.version) == tail
    assert decode_trailer(tail, object_size=len(sst.data)) == (sst.info, sst.version)


@pytest.mark.parametrize("path", SSTS, ids=label)
def test_index_block(path: Path) -> None:
    sst = opened(path)
    image = sst.section(sst.info.index_offset, sst.info.index_len)
    assert encode_index(decode_index(image, data_len=sst.info.data_len)) == image


@pytest.mark.parametrize("path", SSTS, ids=label)
def test_stats_block_holds_the_counts_of_the_rows(path: Path) -> None:
    sst = opened(path)
    if sst.info.sst_type is SstType.WAL:
        assert (sst.info.stats_offset, sst.info.stats_len) == (0, 0)
        return
    image = sst.section(sst.info.stats_offset, sst.info.stats_len)
    stats = decode_stats(image)
    assert encode_stats(stats) == image
    blocks = [decode_block_plain(block, sst.version) for block in sst.blocks()]
    assert stats.blocks.tolist() == [list(kinds(block)) for block in blocks]
    entries = [entry for block in blocks for entry in block]
    assert (stats.num_puts, stats.num_deletes, stats.num_merges) == kinds(entries)
    assert stats.raw_key_size == sum(len(entry.key) for entry in entries)
    assert stats.raw_val_size == sum(len(entry.value) for entry in entries)


@pytest.mark.parametrize("path", SSTS, ids=label)
def test_filter_block_is_built_again_from_the_rows(path: Path) -> None:
    sst = opened(path)
    if not sst.info.filter_len:
        assert sst.info.filter_offset == sst.info.index_offset
        return
    rows = plain_rows([entry for block in sst.blocks() for entry in decode_block_plain(block, sst.version)])
    hashes = hash_keys([rows.key(index) for index in range(len(rows))])
    policies = POLICIES.get(path.parts[path.parts.index("slatedb-0.17") + 1], (BloomPolicy(),))
    built = []
    for policy in policies:
        filter_hashes = FilterHashes(policy)
        middle = len(rows) // 2
        filter_hashes.add_rows(rows.slice(0, middle), hashes[:middle])
        filter_hashes.add_rows(rows.slice(middle, len(rows)), hashes[middle:])
        built.append((policy.name, filter_hashes.encode()))
    assert encode_filters(built) == sst.section(sst.info.filter_offset, sst.info.filter_len)


@pytest.mark.parametrize("path", SSTS, ids=label)
def test_filters_and_index_find_every_key(path: Path) -> None:
    sst = opened(path)
    if sst.info.sst_type is SstType.WAL:
        return
    index = decode_index(sst.section(sst.info.index_offset, sst.info.index_len), data_len=sst.info.data_len)
    filters = sst.filters((P4,))
    for number, block in enumerate(sst.blocks()):
        for entry in decode_block_plain(block, sst.version):
            first, last = index.block_range_for_key(entry.key)
            assert first <= number < last
            assert filters.may_contain_key(entry.key)
            assert filters.may_contain_prefix(entry.key[:5])
    assert sst.info.first_entry is not None


def test_a_prefix_filter_excludes_other_prefixes() -> None:
    path = next(path for path in SSTS if "prefix_filter" in path.parts and "compacted" in path.parts)
    filters = opened(path).filters((P4,))
    assert [named.name for named in filters.filters] == ["_bf:p=p4", "_bf:p=p4:wh=0", "_bf"]
    assert not filters.may_contain_prefix(b"nope-nothing")
    assert filters.may_contain_prefix(b"nop"), "a shorter prefix than the extractor's says nothing"
    assert not filters.may_contain_key(b"nope-nothing")
    assert opened(path).filters(()).may_contain_prefix(b"nope-nothing"), (
        "without the extractor the filter must not be used"
    )


def test_the_documented_sst() -> None:
    """Decode the 368 bytes of docs/reference/format.md 6."""
    rows = bytes.fromhex(
        "000503 6170706c65 726564 0000000000000007 04 00000000000003e8"
        "020500 7269636f74 0000000000000008 05 00000000000003e8"
        "000100 62 0000000000000009 0a 00000000000007d0 0000 0001"
    )
    data = seal_section(rows, Compression.NONE)
    index = seal_section(encode_index(BlockIndex.of([0], [b""], data_len=len(data))), Compression.NONE)
    assert index.hex() == (
        "0c00000000000600080004000600000004000000010000000c00000008000800000004000800000004000000000000007091379d"
    )
    info = SstInfo(
        first_entry=b"apple",
        last_entry=b"b",
        index_offset=0x52,
        index_len=52,
        filter_offset=0x52,
        stats_offset=0x86,
        stats_len=108,
        filter_format=FilterFormat.COMPOSITE,
    )
    trailer = encode_trailer(info, offset=0xF2)
    assert len(data) == 0x52
    assert len(index) == 52
    assert trailer[-14:].hex() == "5792306100000000000000f20002"
    assert bytes(open_section(data, Compression.NONE)) == rows


def kinds(entries: list[Entry]) -> tuple[int, int, int]:
    deletes = sum(bool(entry.flags & FLAG_TOMBSTONE) for entry in entries)
    merges = sum(bool(entry.flags & FLAG_MERGE) for entry in entries)
    return len(entries) - deletes - merges, deletes, merges


def test_rows_of_the_helper_are_rows() -> None:
    rows = plain_rows([Entry(b"a", b"1", 1, 4, 5), Entry(b"b", b"", 2, 5, 6)])
    assert isinstance(rows, Rows)
    assert [rows.key(0), rows.value(0), rows.key(1)] == [b"a", b"1", b"b"]
