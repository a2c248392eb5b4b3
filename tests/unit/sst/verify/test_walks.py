"""The checks of columns and images, against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shale.format.blocks.decoder import open_blocks
from shale.format.blocks.plain import encode_block_plain, split_plain
from shale.format.blocks.section import seal_section
from shale.format.sst.bloom import decode_bloom, encode_bloom
from shale.kernels.rows import rows_from_entries
from shale.sst.verify.order import first_unordered_row
from shale.sst.verify.probe import first_missing
from shale.sst.verify.restarts import BlockWalk, walk_blocks
from shale.types import Compression, Entry
from tests.unit.kernels.blocks_v1 import encode_block_v1
from tests.unit.kernels.strategies import ANY_ROWS, SORTED_ROWS

KEYS = st.lists(st.binary(max_size=20) | st.sampled_from([b"k" * 40, b"k" * 41, b"k" * 40 + b"\x00", b"\xff" * 9]))


def walked(images: list[bytes], version: int, compression: Compression = Compression.NONE) -> BlockWalk:
    sections = [seal_section(image, compression) for image in images]
    offsets = np.cumsum([1000, *map(len, sections)])
    data = b"".join(sections)
    return walk_blocks(open_blocks(data, offsets, version=version, compression=compression, path="x"))


@given(ANY_ROWS, st.sampled_from([200, 4096]), st.sampled_from([1, 2]), st.sampled_from(Compression))
def test_blocks_as_they_are_written(entries: list[Entry], target: int, version: int, compression: Compression) -> None:
    parts = split_plain(entries, target)
    encode = encode_block_plain if version == 2 else encode_block_v1
    walk = walked([encode(part) for part in parts], version, compression)
    assert walk.rows.tolist() == [len(part) for part in parts]
    assert walk.problems == ()


@given(ANY_ROWS, st.sampled_from([1, 2]), st.data())
def test_a_table_that_leads_elsewhere(entries: list[Entry], version: int, data: st.DataObject) -> None:
    """Sequential reads still find the rows; a lookup would start in the middle of one."""
    good = encode_block_plain([Entry(b"a", b"", 1, 0)]) if version == 2 else encode_block_v1([Entry(b"a", b"", 1, 0)])
    image = bytearray(encode_block_plain(entries) if version == 2 else encode_block_v1(entries))
    count = int.from_bytes(image[-2:], "big")
    place = len(image) - 2 - 2 * data.draw(st.integers(1, count))
    old = int.from_bytes(image[place : place + 2], "big")
    image[place : place + 2] = data.draw(st.integers(0, 65535).filter(lambda at: at != old)).to_bytes(2, "big")
    walk = walked([good, bytes(image), good], version)
    assert walk.rows.tolist() == [1, len(entries), 1]
    ((block, what),) = walk.problems
    assert block == 1
    assert "its offsets do not lead to row" in what


def test_a_restart_that_shares() -> None:
    rows = [Entry(b"key-%03d" % number, b"", 1, 0) for number in range(17)]
    whole = encode_block_plain(rows)
    restart = int.from_bytes(whole[-4:-2], "big")
    shared = bytes([4, 3, 0]) + b"016" + bytes(7) + b"\x01\x00"
    image = whole[:restart] + shared + whole[-6:-4] + restart.to_bytes(2, "big") + b"\x00\x02"
    assert walked([image], 2).problems == ((0, "row 16 is a restart without its full key"),)


def test_too_few_offsets() -> None:
    rows = [Entry(b"key-%03d" % number, b"", 1, 0) for number in range(17)]
    whole = encode_block_plain(rows)
    image = whole[:-4] + b"\x00\x01"
    ((_, what),) = walked([image], 2).problems
    assert what == "its offsets do not lead to row 16"


@given(SORTED_ROWS)
def test_rows_in_order(entries: list[Entry]) -> None:
    assert first_unordered_row(rows_from_entries(entries)) is None


@given(KEYS, st.data())
def test_the_first_row_out_of_order(keys: list[bytes], data: st.DataObject) -> None:
    entries = [Entry(key, b"", data.draw(st.integers(0, 3)), 0) for key in keys]
    expected = None
    for place in range(1, len(entries)):
        one, other = entries[place - 1], entries[place]
        if one.key > other.key or (one.key == other.key and one.seq <= other.seq):
            expected = place
            break
    assert first_unordered_row(rows_from_entries(entries)) == expected


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60), st.lists(st.integers(0, 2**64 - 1), max_size=60))
def test_probing_many_at_once(added: list[int], others: list[int]) -> None:
    bloom = decode_bloom(encode_bloom(added, 10))
    assert first_missing(bloom, np.array(added, np.uint64)) is None
    expected = next((place for place, hash64 in enumerate(others) if not bloom.may_contain_hash(hash64)), None)
    assert first_missing(bloom, np.array(others, np.uint64)) == expected
