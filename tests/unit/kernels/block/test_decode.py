"""The decoding kernel against its plain Python version, and on arbitrary bytes."""

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.blocks import decoder
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.plain import decode_block_plain, encode_block_plain, split_plain
from shale.format.blocks.section import seal_section
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import entries_from_rows
from shale.types import Compression, Entry
from tests.examples import examples
from tests.unit.kernels.blocks_v1 import as_v1_reads, encode_block_v1
from tests.unit.kernels.strategies import ANY_ROWS


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


def stored(images: list[bytes], compression: Compression = Compression.NONE) -> tuple[bytes, np.ndarray]:
    sections = [seal_section(image, compression) for image in images]
    return b"".join(sections), np.cumsum([1000, *map(len, sections)])


@given(ANY_ROWS, st.sampled_from([200, 4096]), st.sampled_from(Compression))
def test_blocks_decode_to_their_rows(entries: list[Entry], target: int, compression: Compression) -> None:
    data, offsets = stored([encode_block_plain(part) for part in split_plain(entries, target)], compression)
    rows = decode_blocks(data, offsets, version=2, compression=compression, path="x.sst")
    assert entries_from_rows(rows) == entries


@given(ANY_ROWS)
def test_blocks_of_version_1(entries: list[Entry]) -> None:
    data, offsets = stored([encode_block_v1(part) for part in split_plain(entries, 4096)])
    rows = decode_blocks(data, offsets, version=1, compression=Compression.NONE, path="x.sst")
    assert entries_from_rows(rows) == [as_v1_reads(entry) for entry in entries]


@settings(max_examples=examples(120))
@given(ANY_ROWS.map(lambda rows: rows[:6]), st.data(), st.sampled_from([1, 2]))
def test_hostile_images_meet_the_twins_verdict(entries: list[Entry], data: st.DataObject, version: int) -> None:
    image = bytearray(encode_block_plain(entries) if version == 2 else encode_block_v1(entries))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(
            st.integers(0, min(len(image) - 1, 200)) | st.integers(max(0, len(image) - 8), len(image) - 1)
        )
        image[place] = data.draw(st.integers(0, 255))
    try:
        expected = decode_block_plain(image, version)
    except CorruptionError:
        expected = None
    blocks, offsets = stored([bytes(image)])
    if expected is None:
        with pytest.raises(CorruptionError) as caught:
            decode_blocks(blocks, offsets, version=version, compression=Compression.NONE, path="x.sst")
        assert caught.value.path == "x.sst"
        assert 1000 <= (caught.value.offset or 0) <= offsets[-1]
    else:
        rows = decode_blocks(blocks, offsets, version=version, compression=Compression.NONE, path="x.sst")
        assert entries_from_rows(rows) == expected


@given(st.binary(max_size=60), st.sampled_from([1, 2]))
def test_noise_with_a_valid_checksum(noise: bytes, version: int) -> None:
    data = noise + crc32(noise).to_bytes(4, "big")
    try:
        expected = decode_block_plain(noise, version)
    except CorruptionError:
        expected = None
    offsets = np.array([0, len(data)])
    try:
        rows = decode_blocks(data, offsets, version=version, compression=Compression.NONE, path="x.sst")
    except CorruptionError:
        assert expected is None
    else:
        assert entries_from_rows(rows) == expected


def test_a_flipped_bit_is_reported_with_its_block() -> None:
    images = [encode_block_plain([Entry(b"k%d" % number, b"v", number, 0)]) for number in range(3)]
    data, offsets = stored(images)
    broken = bytearray(data)
    broken[int(offsets[1]) - 1000 + 3] ^= 1
    with pytest.raises(CorruptionError, match=r"x\.sst at byte \d+: checksum mismatch") as caught:
        decode_blocks(broken, offsets, version=2, compression=Compression.NONE, path="x.sst")
    assert caught.value.offset == offsets[1]


def test_truncated_data_is_refused() -> None:
    data, offsets = stored([encode_block_plain([Entry(b"k", b"v", 1, 0)])])
    with pytest.raises(CorruptionError):
        decode_blocks(data[:-1], offsets, version=2, compression=Compression.NONE, path="x.sst")


def test_unfolding_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "KEY_BYTES_SPARE", 1 << 20)
    key = b"k" * 65_536
    image = encode_block_plain([Entry(key, b"", 1, 0)] * 16)
    data, offsets = stored([image] * 40)
    rows = decode_blocks(data, offsets, version=2, compression=Compression.NONE, path="x.sst")
    assert len(rows) == 640
    monkeypatch.setattr(decoder, "KEY_BYTES_SPARE", -(10 << 20))
    with pytest.raises(CorruptionError):
        decode_blocks(data, offsets, version=2, compression=Compression.NONE, path="x.sst")
