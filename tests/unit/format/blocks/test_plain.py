"""The plain block codec against the examples of docs/reference/format.md and against itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.blocks import plain
from shale.format.blocks.output import BlockOptions
from shale.format.blocks.plain import decode_block_plain, encode_block_plain, encode_row, split_plain
from shale.format.blocks.writer import BlockWriter
from shale.kernels.rows import rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry
from tests.unit.kernels.strategies import ANY_ROWS

EXAMPLE = [
    Entry(b"apple", b"red", 7, FLAG_CREATE_TS, 1000),
    Entry(b"apricot", b"", 8, FLAG_TOMBSTONE | FLAG_CREATE_TS, 1000),
    Entry(b"b", b"", 9, FLAG_MERGE | FLAG_EXPIRE_TS, 0, 2000),
]
IMAGE_V2 = bytes.fromhex(
    "0005036170706c657265640000000000000007040000000000 0003e8"
    "020500 7269636f7400000000000000080500000000000003e8"
    "0001006200000000000000090a00000000000007d0 0000 0001"
)
IMAGE_V1 = bytes.fromhex(
    "000000056170706c650000000000000007 04 00000000000003e8 00000003 726564"
    "000200057269636f740000000000000008 05 00000000000003e8"
    "00000001620000000000000009 0a 00000000000007d0 00000000"
    "00000021003b0003"
)


def test_the_example_of_the_format_document() -> None:
    assert encode_block_plain(EXAMPLE) == IMAGE_V2
    assert decode_block_plain(IMAGE_V2, 2) == EXAMPLE
    assert decode_block_plain(IMAGE_V1, 1) == EXAMPLE


@given(ANY_ROWS, st.sampled_from([60, 1024, 4096]))
def test_blocks_round_trip_and_keep_to_their_target(entries: list[Entry], target: int) -> None:
    blocks = split_plain(entries, target)
    assert [entry for block in blocks for entry in block] == entries
    for position, block in enumerate(blocks):
        image = encode_block_plain(block)
        assert decode_block_plain(image, 2) == block
        assert len(image) <= target or len(block) == 1
        if position + 1 < len(blocks):
            assert len(encode_block_plain([*block, blocks[position + 1][0]])) > target


@given(st.binary(max_size=200), st.sampled_from([1, 2]))
def test_noise_never_decodes_to_a_crash(image: bytes, version: int) -> None:
    try:
        rows = decode_block_plain(image, version)
    except CorruptionError:
        return
    assert rows


@pytest.mark.parametrize("version", [1, 2])
def test_every_truncation_is_refused(version: int) -> None:
    image = IMAGE_V2 if version == 2 else IMAGE_V1
    for size in range(len(image)):
        body = image[:size]
        with pytest.raises(CorruptionError):
            decode_block_plain(body + b"\x00\x00", version)


@pytest.mark.parametrize(
    "image",
    [
        pytest.param("0000", id="no rows"),
        pytest.param("ffff", id="more offsets than bytes"),
        pytest.param("01010061" + "00" * 9 + "00000001", id="the first row shares"),
        pytest.param("00010061" + "00" * 8 + "10" + "00000001", id="an unknown flag"),
        pytest.param("00010061" + "00" * 8 + "09" + "00000001", id="a tombstone that is an operand"),
        pytest.param("00ffffffff1f0061" + "00" * 9 + "00000001", id="a length over 32 bits"),
    ],
)
def test_hostile_images_are_refused(image: str) -> None:
    with pytest.raises(CorruptionError):
        decode_block_plain(bytes.fromhex(image), 2)


def test_unfolding_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 14 bytes that share a key of 64 KiB would allocate a gigabyte per 230 KB."""
    monkeypatch.setattr(plain, "KEY_BYTES_SPARE", 1 << 20)
    entry = Entry(b"k" * 65_536, b"", 1, 0)
    rows = encode_row(entry, 0) + encode_row(entry, 65_536) * 100
    with pytest.raises(CorruptionError, match="expand beyond"):
        decode_block_plain(rows + b"\x00\x00\x00\x01", 2)


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("seqs", [(1, 2), (2, 2)])
def test_versions_of_a_key_whose_numbers_do_not_descend_are_refused(
    monkeypatch: pytest.MonkeyPatch, seqs: tuple[int, int], is_plain: bool
) -> None:
    if is_plain:
        monkeypatch.setattr("shale.format.blocks.writer.use_kernels", lambda: False)
    rows = rows_from_entries([Entry(b"k", b"", seq, 0) for seq in seqs])
    with pytest.raises(CorruptionError, match="rows out of order"):
        BlockWriter(BlockOptions(target_bytes=100)).add(rows)
    BlockWriter(BlockOptions(target_bytes=100, by_seq=True)).add(rows)
