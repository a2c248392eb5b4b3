"""Bloom filters: number of probes as u16 big-endian, then the bits (docs/reference/format.md 9.2 and 9.3)."""

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.sst.siphash import siphash13
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import U8, U64

_HEADER_SIZE = 2
_PROBES_PER_BIT = np.float32(0.69)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The bits of one filter.  ``bits`` has shape (n_bytes,) and shares the memory it was read from."""

    num_probes: int
    bits: U8
    _view: memoryview = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_view", self.bits.data)

    @property
    def num_bits(self) -> int:
        """The number of bits."""
        return 8 * len(self.bits)

    def may_contain(self, data: BytesLike) -> bool:
        """Return whether this byte string may have been added."""
        return self.may_contain_hash(siphash13(data))

    def may_contain_hash(self, hash64: int) -> bool:
        """Return whether a byte string with this hash may have been added."""
        modulus = self.num_bits
        if not modulus:
            return False
        bits = self._view
        position = (hash64 & 0xFFFFFFFF) % modulus
        delta = (hash64 >> 32) % modulus
        for probe in range(self.num_probes):
            delta = (delta + probe) % modulus
            if not bits[position >> 3] >> (position & 7) & 1:
                return False
            position = (position + delta) % modulus
        return True


def num_probes(bits_per_key: int) -> int:
    """Return the probes per hash, computed in 32-bit floats as SlateDB does."""
    return int(np.float32(bits_per_key) * _PROBES_PER_BIT)


def encode_bloom(hashes: Sequence[int] | U64, bits_per_key: int) -> bytes:
    """Return a filter over hashes; repeated ones count for its size too."""
    return encode_bloom_pieces([np.asarray(hashes, np.uint64)], bits_per_key)


def encode_bloom_pieces(pieces: Sequence[U64], bits_per_key: int) -> bytes:
    """Return a filter over the hashes in several arrays, which are not joined: a large SST has millions."""
    count = sum(map(len, pieces))
    size = (count * bits_per_key + 7) // 8
    probes = num_probes(bits_per_key)
    header = probes.to_bytes(_HEADER_SIZE, "big")
    if not size:
        return header
    if use_kernels():
        from shale.kernels.bloom import add_bits

        bits = np.zeros(size, np.uint8)
        for piece in pieces:
            add_bits(bits, piece, probes)
        return header + bits.tobytes()
    marks = np.zeros(8 * size, np.uint8)
    for piece in pieces:
        _mark(marks, piece, probes)
    return header + np.packbits(marks, bitorder="little").tobytes()


def _mark(marks: U8, hashes: U64, probes: int) -> None:
    modulus = np.uint64(len(marks))
    positions = (hashes & np.uint64(0xFFFFFFFF)) % modulus
    deltas = (hashes >> np.uint64(32)) % modulus
    for probe in range(probes):
        deltas = (deltas + np.uint64(probe)) % modulus
        marks[positions] = 1
        positions = (positions + deltas) % modulus


def decode_bloom(data: BytesLike) -> BloomFilter:
    """Read one filter.

    Raises:
        CorruptionError: too short for the number of probes.
    """
    if len(data) < _HEADER_SIZE:
        raise CorruptionError(f"a bloom filter of {len(data)} bytes")
    return BloomFilter(int.from_bytes(data[:_HEADER_SIZE], "big"), np.frombuffer(data, np.uint8)[_HEADER_SIZE:])
