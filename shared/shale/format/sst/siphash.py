"""SipHash-1-3 with the key (0, 0), 64 bits: the hash of bloom filters (docs/reference/format.md 9.3).

The plain form, for single probes and small filters; ``shale.kernels.siphash`` hashes whole columns.
"""

from struct import unpack_from

from shale.core.bytes_like import BytesLike

_MASK = 2**64 - 1
_V0, _V1, _V2, _V3 = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573
_FINAL_ROUNDS = 3


def siphash13(data: BytesLike) -> int:
    """Return the hash of a byte string: no prefix, no terminator."""
    size = len(data)
    tail = size & 7
    words = unpack_from(f"<{size >> 3}Q", data)
    last = size << 56 & _MASK | int.from_bytes(data[size - tail :], "little")
    v0, v1, v2, v3 = _V0, _V1, _V2, _V3
    for word in (*words, last):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
    v2 ^= 0xFF
    for _ in range(_FINAL_ROUNDS):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = v0 + v1 & _MASK
    v2 = v2 + v3 & _MASK
    v1 = (v1 << 13 | v1 >> 51) & _MASK ^ v0
    v3 = (v3 << 16 | v3 >> 48) & _MASK ^ v2
    v0 = (v0 << 32 | v0 >> 32) & _MASK
    v2 = v2 + v1 & _MASK
    v0 = v0 + v3 & _MASK
    v1 = (v1 << 17 | v1 >> 47) & _MASK ^ v2
    v3 = (v3 << 21 | v3 >> 43) & _MASK ^ v0
    v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0, v1, v2, v3
