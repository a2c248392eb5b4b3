"""Codecs and stored sections: round trips, and refusal of damaged sections and decompression bombs."""

import contextlib
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.blocks import compression
from shale.format.blocks.compression import compress, decompress
from shale.format.blocks.section import open_section, seal_section
from shale.types import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@given(st.sampled_from(list(Compression)), st.binary(max_size=300), st.integers(0, 300))
def test_round_trip(codec: Compression, head: bytes, repeat: int) -> None:
    image = head + head[:9] * repeat
    assert bytes(open_section(seal_section(image, codec), codec)) == image


def test_stored_forms_begin_as_documented() -> None:
    image = b"abc" * 100
    assert compress(Compression.SNAPPY, image)[:2] == b"\xac\x02"
    assert compress(Compression.ZLIB, image)[:2] == b"\x78\x9c"
    assert compress(Compression.LZ4, image)[:4] == struct.pack("<I", 300)
    assert zstd.get_frame_info(compress(Compression.ZSTD, image)).decompressed_size == 300


@given(st.sampled_from(CODECS), st.binary(max_size=80))
def test_any_bytes_unpack_or_are_corrupt(codec: Compression, stored: bytes) -> None:
    assert_unpacks_or_is_corrupt(codec, stored)


def assert_unpacks_or_is_corrupt(codec: Compression, stored: bytes) -> None:
    """What unpacks is an image, which has a stored form that unpacks to it."""
    with contextlib.suppress(CorruptionError):
        image = decompress(codec, stored)
        assert bytes(decompress(codec, compress(codec, image))) == bytes(image)


@given(st.sampled_from(CODECS), st.integers(0, 2**16), st.integers(1, 255))
def test_a_flipped_byte_unpacks_or_is_corrupt(codec: Compression, place: int, flip: int) -> None:
    stored = bytearray(compress(codec, b"some text, some more text, " * 20))
    stored[place % len(stored)] ^= flip
    assert_unpacks_or_is_corrupt(codec, bytes(stored))


FREE = 64 << 20
"""Instead of a gigabyte, which would take its time."""


def unpacked() -> bytes:
    return bytes(2 * FREE)


def zstd_without_size() -> bytes:
    return zstd.compress(unpacked(), options={zstd.CompressionParameter.content_size_flag: 0})


BOMBS: list[tuple[Compression, Callable[[], bytes]]] = [
    (Compression.ZLIB, lambda: zlib.compress(unpacked(), 9)),
    (Compression.ZSTD, lambda: zstd.compress(unpacked())),
    (Compression.ZSTD, zstd_without_size),
    (Compression.LZ4, lambda: b"\xff\xff\xff\xff\x10a"),
    (Compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00a"),
]


@pytest.mark.parametrize(
    ("codec", "bomb"), BOMBS, ids=["zlib", "zstd", "zstd without size", "lz4 claims 4 GiB", "snappy claims 4 GiB"]
)
def test_bombs_are_refused_before_they_take_memory(
    codec: Compression, bomb: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = bomb()
    monkeypatch.setattr(compression, "IMAGE_SIZE_FREE", FREE)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError, match="exceeds the limit"):
            decompress(codec, stored)
        assert tracemalloc.get_traced_memory()[1] < 4 * FREE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("has_size", [0, 1])
def test_a_zstd_frame_is_complete_and_alone(has_size: int) -> None:
    image = b"some text, " * 90
    stored = zstd.compress(image, options={zstd.CompressionParameter.content_size_flag: has_size})
    assert decompress(Compression.ZSTD, stored) == image
    for damaged in (stored[:-1], stored[: len(stored) // 2], stored + b"x", stored + stored):
        with pytest.raises(CorruptionError):
            decompress(Compression.ZSTD, damaged)


def test_a_wrong_length_in_front_of_lz4_is_noticed() -> None:
    stored = compress(Compression.LZ4, b"abcdef" * 50)
    for claimed in (299, 301, 0):
        with pytest.raises(CorruptionError):
            decompress(Compression.LZ4, struct.pack("<I", claimed) + stored[4:])


def test_a_constant_value_of_many_megabytes_is_no_bomb() -> None:
    """A row of 65 MiB that compresses well was written, and every reader refused it."""
    image = bytes(65 << 20)
    for codec in (Compression.ZSTD, Compression.ZLIB):
        assert len(decompress(codec, compress(codec, image))) == len(image)


@pytest.mark.parametrize("cut", [1, 4, 10, 300])
def test_a_section_that_is_cut_or_flipped_names_its_place(cut: int) -> None:
    sealed = seal_section(b"payload of some length", Compression.NONE)
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for stored in (sealed[:-cut], flipped):
        with pytest.raises(CorruptionError) as caught:
            open_section(stored, Compression.NONE, "db/x.sst", 4096)
        assert str(caught.value).startswith("db/x.sst at byte 4096: ")
