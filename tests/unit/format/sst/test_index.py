"""The index block: same bytes as entry by entry, and the right blocks for a key or a range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.sst.index import BlockIndex, decode_index, encode_index
from shale.types import EVERYTHING, Bound, BoundKind, KeyRange, excluded, included
from tests.unit.format.table_writer import TableWriter


def plain_index(offsets: list[int], keys: list[bytes]) -> bytes:
    writer = TableWriter()
    tables = []
    for offset, key in zip(offsets, keys, strict=True):
        vector = writer.blob(key)
        tables.append(writer.table("BlockMeta", (offset, vector)))
    return writer.finish(writer.table("SsTableIndex", (writer.references(tables),)))


@given(st.lists(st.tuples(st.binary(max_size=13), st.integers(1, 2**34)), max_size=20))
def test_same_bytes_as_entry_by_entry_and_back(blocks: list[tuple[bytes, int]]) -> None:
    keys = [key for key, _ in blocks]
    offsets = [sum(size for _, size in blocks[:number]) for number in range(len(blocks))]
    data_len = sum(size for _, size in blocks)
    image = encode_index(BlockIndex.of(offsets, keys, data_len=data_len))
    assert image == plain_index(offsets, keys)
    index = decode_index(image, data_len=data_len)
    assert index.offsets.tolist() == [*offsets, data_len]
    assert [index.first_key(block) for block in range(len(index))] == keys


INDEX = BlockIndex.of([0, 10, 20, 30, 40], [b"", b"c", b"m", b"m", b"t"], data_len=50)


@pytest.mark.parametrize(
    ("key", "blocks"),
    [
        (b"", (0, 1)),
        (b"a", (0, 1)),
        (b"c", (0, 2)),
        (b"cc", (1, 2)),
        (b"m", (1, 4)),
        (b"mm", (3, 4)),
        (b"t", (3, 5)),
        (b"z", (4, 5)),
    ],
)
def test_blocks_of_a_key(key: bytes, blocks: tuple[int, int]) -> None:
    assert INDEX.block_range_for_key(key) == blocks


@pytest.mark.parametrize(
    ("start", "end", "blocks"),
    [
        (None, None, (0, 5)),
        (included(b"d"), None, (1, 5)),
        (included(b"m"), None, (1, 5)),
        (None, excluded(b"m"), (0, 2)),
        (None, included(b"m"), (0, 4)),
        (included(b"d"), included(b"e"), (1, 2)),
        (included(b"u"), excluded(b"v"), (4, 5)),
        (None, excluded(b""), (0, 0)),
        (included(b"t"), excluded(b"c"), (1, 1)),
    ],
)
def test_blocks_of_a_range(start: Bound | None, end: Bound | None, blocks: tuple[int, int]) -> None:
    unbounded = Bound(BoundKind.UNBOUNDED)
    first, last = INDEX.block_range(KeyRange(start or unbounded, end or unbounded))
    assert (first, last) == blocks


def test_full_first_keys_are_separators_too() -> None:
    index = BlockIndex.of([0, 10], [b"b", b"d"], data_len=20)
    assert index.block_range_for_key(b"a") == (0, 0)
    assert index.block_range(KeyRange.half_open(b"a", b"b")) == (0, 0)
    assert index.block_range(EVERYTHING) == (0, 2)


@pytest.mark.parametrize(
    ("offsets", "data_len"),
    [([0, 10, 10], 20), ([0, 20, 10], 30), ([0, 10], 10), ([0, 10], 5), ([5, 10], 20), ([], 1), ([0, 2**63], 20)],
)
def test_blocks_that_do_not_ascend_inside_the_data_are_corrupt(offsets: list[int], data_len: int) -> None:
    image = plain_index(offsets, [b"k"] * len(offsets))
    with pytest.raises(CorruptionError) as caught:
        decode_index(image, data_len=data_len, path="a.sst", offset=99)
    assert caught.value.path == "a.sst"
    assert caught.value.offset == 99


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ([], None),
        ([b"m"], None),
        ([b"", b"", b"a", b"a", b"ab"], None),
        ([b"", b"row/000220", b"row/000.21", b"row/000300"], 2),
        ([b"b", b"a", b"c"], 1),
        ([b"a", b"ab", b"b", b""], 3),
    ],
)
def test_the_first_separator_below_the_one_before(keys: list[bytes], place: int | None) -> None:
    assert BlockIndex.of(range(len(keys)), keys, data_len=len(keys)).first_descending() == place


def test_keys_that_share_one_vector_cannot_fill_the_memory() -> None:
    writer = TableWriter()
    key = writer.blob(bytes(10_000))
    tables = [writer.table("BlockMeta", (number, key)) for number in range(2_000)]
    image = writer.finish(writer.table("SsTableIndex", (writer.references(tables),)))
    with pytest.raises(CorruptionError, match="over and over"):
        decode_index(image, data_len=10_000)


def test_all_separators_at_once() -> None:
    index = BlockIndex.of([0, 10, 20], [b"", b"ab", b"b" * 300], data_len=30)
    assert index.first_keys() == [index.first_key(block) for block in range(3)] == [b"", b"ab", b"b" * 300]


def test_a_long_index_is_gathered_piece_by_piece() -> None:
    """Keys have every length and cross the borders of the pieces."""
    keys = [b"", *(b"%08d" % number + b"x" * (number % 7) for number in range(1, 10_000))]
    index = BlockIndex.of(range(0, 4000 * len(keys), 4000), keys, data_len=4000 * len(keys))
    read = decode_index(encode_index(index), data_len=index.data_len)
    assert read.first_keys() == keys
    assert read.offsets.tolist() == index.offsets.tolist()
