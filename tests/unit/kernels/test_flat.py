"""Index and stats by kernels: the same bytes, the same columns and the same errors as without."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.sst.index import BlockIndex, decode_index, encode_index
from shale.format.sst.stats import SstStats, decode_stats, encode_stats
from shale.kernels.dispatch import use_kernels
from tests.unit.format.table_writer import TableWriter

blocks_of_an_index = st.lists(st.tuples(st.binary(max_size=13), st.integers(1, 2**34)), max_size=40)
changes = st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from([0, 1, 3, 4, 8, 16, 127, 128, 255])), max_size=3)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


def index_of(blocks: list[tuple[bytes, int]]) -> BlockIndex:
    offsets = [sum(size for _, size in blocks[:number]) for number in range(len(blocks))]
    return BlockIndex.of(offsets, [key for key, _ in blocks], data_len=sum(size for _, size in blocks))


def plainly(work: Callable[[], Any]) -> Any:
    """What comes of it without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("index", "stats"):
            patch.setattr(f"shale.format.sst.{module}.use_kernels", lambda: False)
        return work()


def read(image: bytes, data_len: int) -> Any:
    try:
        index = decode_index(image, data_len=data_len, path="a.sst", offset=99)
    except CorruptionError as error:
        return str(error), error.path, error.offset
    return index.offsets.tolist(), index.key_bytes.tobytes(), index.key_offsets.tolist()


def read_stats(image: bytes) -> Any:
    try:
        return decode_stats(image, path="a.sst", offset=99).blocks.tolist()
    except CorruptionError as error:
        return str(error), error.path, error.offset


def changed(image: bytes, places: list[tuple[int, int]]) -> bytes:
    data = bytearray(image)
    for place, value in places:
        data[place % len(data)] = value
    return bytes(data)


@given(blocks_of_an_index)
def test_an_index_has_the_bytes_of_the_twin(blocks: list[tuple[bytes, int]]) -> None:
    index = index_of(blocks)
    assert encode_index(index) == plainly(lambda: encode_index(index))


@given(st.lists(st.text("ab", max_size=20), max_size=40), st.booleans(), st.integers(0, 40))
def test_the_first_descending_separator_is_that_of_the_twin(texts: list[str], in_order: bool, place: int) -> None:
    keys = [text.encode() for text in texts]
    if in_order:
        keys.sort()
        keys[place:place] = [b"aab"]
    index = index_of([(key, 1) for key in keys])
    assert index.first_descending() == plainly(index.first_descending)


@given(blocks_of_an_index, changes, st.integers(0, 40))
def test_a_damaged_index_reads_as_by_the_twin(
    blocks: list[tuple[bytes, int]], places: list[tuple[int, int]], cut: int
) -> None:
    index = index_of(blocks)
    image = changed(encode_index(index), places)
    for data in (image, image[: len(image) - cut]):
        assert read(data, index.data_len) == plainly(lambda data=data: read(data, index.data_len))


def test_every_word_of_an_index_damaged() -> None:
    """Each kind of reference, led to each kind of place."""
    index = index_of([(b"", 9), (b"abc", 9), (b"abd", 9), (b"b", 9), (b"cdefg", 9)])
    image = encode_index(index)
    values = [0, 1, 3, 4, 8, len(image) - 4, len(image), 2**31 - 1, 2**31, 2**32 - 1]
    refused = 0
    for at in range(0, len(image), 2):
        for value in values:
            damaged = image[:at] + value.to_bytes(4, "little") + image[at + 4 :]
            found = read(damaged, index.data_len)
            assert found == plainly(lambda damaged=damaged: read(damaged, index.data_len))
            refused += isinstance(found[0], str)
    assert refused > 100


def test_keys_that_are_shared_are_read_by_the_twin() -> None:
    """Within the budget of a reader, beyond what any writer makes."""
    writer = TableWriter()
    key = writer.blob(bytes(100))
    tables = [writer.table("BlockMeta", (number, key)) for number in range(8)]
    image = writer.finish(writer.table("SsTableIndex", (writer.references(tables),)))
    assert read(image, 99)[1] == bytes(800)


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=30),
    st.integers(0, 2**32),
    changes,
)
def test_stats_read_as_by_the_twin(blocks: list[tuple[int, ...]], seed: int, places: list[tuple[int, int]]) -> None:
    counts = np.array(blocks, np.uint16).reshape(-1, 3) * Random(seed).choice([1, 20_000])
    stats = SstStats(num_puts=1, blocks=counts.astype(np.uint16))
    image = encode_stats(stats)
    assert image == plainly(lambda: encode_stats(stats))
    assert read_stats(image) == counts.tolist()
    damaged = changed(image, places)
    assert read_stats(damaged) == plainly(lambda: read_stats(damaged))
