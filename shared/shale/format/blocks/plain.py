"""Data blocks in plain Python: for small inputs, and the reference that tests compare the kernels with.

A block image is rows, then one u16 per offset, then the number of offsets as u16 (docs/reference/format.md 7)::

    rows | offsets: count x u16 BE | count: u16 BE

In version 2 every 16th row is a restart with its full key, and the offsets are those of the restarts; in version 1
every row shares with the block's first key and has an offset.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, FLAGS_KNOWN, Entry

RESTART_INTERVAL = 16
KEY_BYTES_SPARE = 256 << 20
"""Bytes of keys that one call may expand beyond 16 times its input: shared prefixes of a hostile block could otherwise
claim any amount of memory."""

_U16 = Struct(">H")
_U64 = Struct(">Q")
_I64 = Struct(">q")
_U32 = Struct(">I")
_SEQ_FLAGS = Struct(">QB")
_V1_HEAD = Struct(">HH")


def decode_block_plain(image: BytesLike, version: int) -> list[Entry]:
    """Read every row of a block image (decompressed, without its checksum).

    Raises:
        CorruptionError: with the offset inside the image.
    """
    data = bytes(image)
    end = _rows_end(data)
    entries = _decode_v2(data, end) if version == 2 else _decode_v1(data, end)
    if not entries:
        raise CorruptionError("a block without rows", offset=0)
    return entries


def encode_block_plain(entries: Sequence[Entry]) -> bytes:
    """Write a block image of version 2, of any size."""
    rows = bytearray()
    restarts = []
    previous = b""
    for index, entry in enumerate(entries):
        if index % RESTART_INTERVAL == 0:
            restarts.append(len(rows))
            previous = b""
        rows += encode_row(entry, shared_len(previous, entry.key))
        previous = entry.key
    return b"".join((rows, *(_U16.pack(at & 0xFFFF) for at in restarts), _U16.pack(len(restarts))))


def split_plain(entries: Iterable[Entry], target_bytes: int) -> list[list[Entry]]:
    """Split rows into blocks: a row joins a block if the image then stays within the target.

    Source: docs/reference/format.md 7.
    """
    blocks: list[list[Entry]] = []
    size = 0
    previous = b""
    for entry in entries:
        block = blocks[-1] if blocks else None
        if block is not None:
            at_restart = len(block) % RESTART_INTERVAL == 0
            shared = 0 if at_restart else shared_len(previous, entry.key)
            grown = size + row_size(entry, shared) + (2 if at_restart else 0)
            if grown <= target_bytes:
                block.append(entry)
                size, previous = grown, entry.key
                continue
        blocks.append([entry])
        size, previous = 2 + 2 + row_size(entry, 0), entry.key
    return blocks


def encode_row(entry: Entry, shared: int) -> bytes:
    """Write one row of version 2 that takes ``shared`` bytes of its key from the row before."""
    parts = [
        varint(shared),
        varint(len(entry.key) - shared),
        varint(len(entry.value)),
        entry.key[shared:],
        entry.value,
        _SEQ_FLAGS.pack(entry.seq, entry.flags),
    ]
    if entry.flags & FLAG_EXPIRE_TS:
        parts.append(_I64.pack(entry.expire_ts))
    if entry.flags & FLAG_CREATE_TS:
        parts.append(_I64.pack(entry.create_ts))
    return b"".join(parts)


def row_size(entry: Entry, shared: int) -> int:
    """Return the size of ``encode_row``."""
    suffix, value = len(entry.key) - shared, len(entry.value)
    stamps = 8 * ((entry.flags & FLAG_EXPIRE_TS != 0) + (entry.flags & FLAG_CREATE_TS != 0))
    return varint_size(shared) + varint_size(suffix) + varint_size(value) + suffix + value + 9 + stamps


def shared_len(left: bytes, right: bytes) -> int:
    """Return the length of the longest common prefix."""
    most = min(len(left), len(right))
    if left[:most] == right[:most]:
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def varint(value: int) -> bytes:
    """Write unsigned LEB128 (docs/reference/format.md 2.3)."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Return the size of ``varint(value)``."""
    return max(1, (value.bit_length() + 6) // 7)


def _rows_end(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptionError(f"a block of {len(data)} bytes", offset=0)
    (count,) = _U16.unpack_from(data, len(data) - 2)
    end: int = len(data) - 2 - 2 * count
    if count == 0 or end <= 0:
        raise CorruptionError(f"a block of {len(data)} bytes claims {count} offsets", offset=len(data) - 2)
    return end


def _decode_v2(data: bytes, end: int) -> list[Entry]:
    entries: list[Entry] = []
    at = key_bytes = 0
    key = b""
    spare = KEY_BYTES_SPARE + 16 * len(data)
    while at < end:
        start = at
        shared, at = _read_varint(data, at, end)
        suffix_len, at = _read_varint(data, at, end)
        value_len, at = _read_varint(data, at, end)
        value_at = at + suffix_len
        stamps_at = value_at + value_len + 9
        if stamps_at > end or shared > len(key):
            raise CorruptionError("a row does not fit its block", offset=start)
        key = key[:shared] + data[at:value_at]
        key_bytes += len(key)
        if key_bytes > spare:
            raise CorruptionError("the keys of a block expand beyond the limit", offset=start)
        seq, flags = _SEQ_FLAGS.unpack_from(data, stamps_at - 9)
        create_ts, expire_ts, at = _read_stamps(data, stamps_at, end, flags, start)
        value = b"" if flags & FLAG_TOMBSTONE else data[value_at : value_at + value_len]
        entries.append(Entry(key, value, seq, flags, create_ts, expire_ts))
    return entries


def _decode_v1(data: bytes, end: int) -> list[Entry]:
    entries: list[Entry] = []
    at = key_bytes = 0
    first = b""
    spare = KEY_BYTES_SPARE + 16 * len(data)
    while at < end:
        start = at
        _need(at + 4 <= end, start)
        shared, suffix_len = _V1_HEAD.unpack_from(data, at)
        at += 4 + suffix_len
        _need(at + 9 <= end and shared <= len(first), start)
        key = first[:shared] + data[start + 4 : at]
        first = first if entries else key
        key_bytes += len(key)
        _need(key_bytes <= spare, start)
        seq, flags = _SEQ_FLAGS.unpack_from(data, at)
        create_ts, expire_ts, at = _read_stamps(data, at + 9, end, flags, start)
        value = b""
        if flags & FLAG_TOMBSTONE:
            flags, expire_ts = flags & ~FLAG_EXPIRE_TS, 0
        else:
            _need(at + 4 <= end, start)
            (value_len,) = _U32.unpack_from(data, at)
            at += 4
            _need(at + value_len <= end, start)
            value = data[at : at + value_len]
            at += value_len
        entries.append(Entry(key, value, seq, flags, create_ts, expire_ts))
    return entries


def _read_stamps(data: bytes, at: int, end: int, flags: int, start: int) -> tuple[int, int, int]:
    if flags & ~FLAGS_KNOWN or (flags & FLAG_TOMBSTONE and flags & FLAG_MERGE):
        raise CorruptionError(f"invalid row flags {flags:#x}", offset=start)
    create_ts = expire_ts = 0
    if flags & FLAG_EXPIRE_TS:
        _need(at + 8 <= end, start)
        (expire_ts,) = _I64.unpack_from(data, at)
        at += 8
    if flags & FLAG_CREATE_TS:
        _need(at + 8 <= end, start)
        (create_ts,) = _I64.unpack_from(data, at)
        at += 8
    return create_ts, expire_ts, at


def _need(fits: bool, start: int) -> None:
    if not fits:
        raise CorruptionError("a row does not fit its block", offset=start)


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            raise CorruptionError("a block ends inside a number", offset=at)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 32:
                break
            return value, at
    raise CorruptionError("a number of a row is over 32 bits", offset=at)
