"""Checksums, key hashes and bloom filters against the standard library and their plain Python versions."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.format.sst.bloom import BloomFilter, encode_bloom, num_probes
from shale.format.sst.siphash import siphash13
from shale.kernels.columns import address_of
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import rows_from_entries
from shale.types import Entry


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


@given(st.binary(max_size=700), st.integers(0, 20))
def test_crc32_at_any_length_and_place(data: bytes, skip: int) -> None:
    from shale.kernels.source.crc32 import crc32, crc32_by_tables

    padded = np.frombuffer(bytes(skip) + data + b"\0", np.uint8)
    address = address_of(padded) + skip
    assert crc32(address, len(data)) == zlib.crc32(data)
    assert crc32_by_tables(address, len(data)) == zlib.crc32(data)


def test_crc32_of_large_data() -> None:
    from shale.kernels.source.crc32 import crc32, crc32_by_tables

    data = np.random.default_rng(1).integers(0, 256, 1_000_003, dtype=np.uint8)
    assert (
        crc32(address_of(data), len(data)) == zlib.crc32(data.tobytes()) == crc32_by_tables(address_of(data), len(data))
    )


@given(st.lists(st.binary(max_size=40), min_size=1))
def test_siphash_is_the_twins(keys: list[bytes]) -> None:
    from shale.kernels.siphash import hash_keys

    rows = rows_from_entries([Entry(key, b"", 1, 0) for key in keys])
    assert hash_keys(rows).tolist() == [siphash13(key) for key in keys]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200), st.integers(1, 40))
def test_bloom_bits_are_the_twins(hashes: list[int], bits_per_key: int) -> None:
    from shale.kernels.bloom import add_bits
    from shale.kernels.source.bloom import may_contain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shale.format.sst.bloom.use_kernels", lambda: False)
        plain = encode_bloom(hashes, bits_per_key)
    probes = num_probes(bits_per_key)
    bits = np.zeros(len(plain) - 2, np.uint8)
    for piece in np.array_split(np.array(hashes, np.uint64), 3):
        add_bits(bits, piece, probes)
    assert bits.tobytes() == plain[2:]
    twin = BloomFilter(probes, bits)
    for hash64 in [*hashes, 0, 1, 2**64 - 1, 0x123456789ABCDEF]:
        assert may_contain(address_of(bits), len(bits), probes, np.uint64(hash64)) == twin.may_contain_hash(hash64)
