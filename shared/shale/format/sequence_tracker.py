"""The sequence tracker: which sequence number was reached in which second (docs/reference/format.md 14).

::

    version u8 = 1 | count u32 little-endian | sequence numbers | seconds

Both lists are bit streams, most significant bit first, padded to whole bytes: 32 bits count, 64 bits first value, then
the difference of differences of each further value in a code of 1 to 36 bits.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError

INTERVAL_S = 60
CAPACITY = 8192
_VERSION = 1
_HEADER_SIZE = 5
_MASK64 = 2**64 - 1
_CODES = ((7, 0b10, 2), (9, 0b110, 3), (12, 0b1110, 4))
"""Payload bits, prefix and its length; values of magnitude 2**(bits-1) take the next code."""
_LONG_BITS, _LONG_PREFIX, _LONG_PREFIX_BITS = 32, 0b1111, 4


class SequenceTracker:
    """Points (seq, second since 1970), both ascending.  They are estimates: no protocol depends on them."""

    def __init__(self, points: Iterable[tuple[int, int]] = ()) -> None:
        pairs = list(points)
        self._seqs = [seq for seq, _ in pairs]
        self._seconds = [second for _, second in pairs]

    @classmethod
    def decode(cls, data: BytesLike, *, path: str | None = None) -> "SequenceTracker":
        """Read a tracker.

        Raises:
            CorruptionError: another version, or streams that end early or disagree with the count.
        """
        if len(data) < _HEADER_SIZE or data[0] != _VERSION:
            raise CorruptionError("a sequence tracker of unknown version", path=path)
        count = int.from_bytes(data[1:_HEADER_SIZE], "little")
        try:
            seqs, used = _decode_stream(memoryview(data)[_HEADER_SIZE:], count)
            seconds, _ = _decode_stream(memoryview(data)[_HEADER_SIZE + used :], count)
        except CorruptionError as error:
            raise CorruptionError(error.message, path=path) from error
        return cls(zip(seqs, seconds, strict=True))

    def encode(self) -> bytes:
        """Return the stored form; differences beyond 32 bits are truncated, as in SlateDB."""
        count = len(self._seqs)
        header = bytes([_VERSION]) + count.to_bytes(4, "little")
        return header + _encode_stream(self._seqs) + _encode_stream(self._seconds)

    @property
    def points(self) -> list[tuple[int, int]]:
        """All points, oldest first."""
        return list(zip(self._seqs, self._seconds, strict=True))

    def record(self, seq: int, second: int) -> bool:
        """Record a commit unless the last point is less than ``INTERVAL_S`` old; return whether it was recorded."""
        if self._seconds and (second - self._seconds[-1] < INTERVAL_S or seq <= self._seqs[-1]):
            return False
        self._seqs.append(seq)
        self._seconds.append(second)
        if len(self._seqs) > CAPACITY:
            del self._seqs[1::2], self._seconds[1::2]
        return True

    def seq_to_time(self, seq: int, *, round_up: bool = False) -> int | None:
        """Return the second of the last point at or before ``seq``, or of the first at or after it, if any."""
        return _lookup(self._seqs, self._seconds, seq, round_up=round_up)

    def time_to_seq(self, second: int, *, round_up: bool = False) -> int | None:
        """Return the seq of the last point at or before ``second``, or of the first at or after it, if any."""
        return _lookup(self._seconds, self._seqs, second, round_up=round_up)


def _lookup(keys: Sequence[int], values: Sequence[int], key: int, *, round_up: bool) -> int | None:
    index = bisect_left(keys, key) if round_up else bisect_right(keys, key) - 1
    return values[index] if 0 <= index < len(values) else None


def _encode_stream(values: Sequence[int]) -> bytes:
    bits, size = len(values), 32
    if values:
        bits, size = bits << 64 | values[0] & _MASK64, size + 64
    previous_delta = 0
    parts: list[tuple[int, int]] = []
    for before, value in itertools.pairwise(values):
        delta = value - before
        parts.append(_code(delta - previous_delta))
        previous_delta = delta
    # Joining in text is linear; shifting one large number per value would not be.
    text = f"{bits:0{size}b}" + "".join(f"{code:0{length}b}" for code, length in parts)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def _code(dod: int) -> tuple[int, int]:
    """Return the code of a difference of differences, and its length in bits."""
    if dod == 0:
        return 0, 1
    for bits, prefix, prefix_bits in _CODES:
        if abs(dod) < 1 << bits - 1:
            return prefix << bits | dod & (1 << bits) - 1, prefix_bits + bits
    return _LONG_PREFIX << _LONG_BITS | dod & (1 << _LONG_BITS) - 1, _LONG_PREFIX_BITS + _LONG_BITS


def _decode_stream(data: memoryview, count: int) -> tuple[list[int], int]:
    """Return the values of one stream and the number of whole bytes it takes."""
    text = bin(int.from_bytes(b"\x01" + data, "big"))[3:]
    if len(text) < 32 or int(text[:32], 2) != count:
        raise CorruptionError("a sequence tracker's streams disagree with its count")
    if count == 0:
        return [], 4
    at = 96
    if len(text) < at + count - 1:
        raise CorruptionError("a sequence tracker ends early")
    values = [int(text[32:at], 2)]
    delta = 0
    for _ in range(count - 1):
        dod, at = _decode_code(text, at)
        delta += dod
        values.append(values[-1] + delta & _MASK64)
    return values, (at + 7) // 8


def _decode_code(text: str, at: int) -> tuple[int, int]:
    ones = 0
    while ones < _LONG_PREFIX_BITS and text[at + ones : at + ones + 1] == "1":
        ones += 1
    start = at + min(ones + 1, _LONG_PREFIX_BITS)
    bits = (0, *(bits for bits, _, _ in _CODES), _LONG_BITS)[ones]
    if start + bits > len(text):
        raise CorruptionError("a sequence tracker ends early")
    if not bits:
        return 0, start
    payload = int(text[start : start + bits], 2)
    return payload - (payload >> bits - 1 << bits), start + bits
