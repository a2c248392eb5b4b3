"""One part of an SST as a file of the disk cache.

::

    "SHALEPT1" | name of the object 16 bytes | number of the part u32 | length u32
    | crc32 of each 16 KiB of data, u32 ... | crc32 of all before u32 | data

All numbers are little-endian.  Files are renamed into place without fsync, so a crash may leave a torn file.  A part
whose checksums do not match counts as missing.  A read checks the pieces that it needs, not the whole part.
"""

import os
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from shale.core.bytes_like import BytesLike

CHUNK_BYTES = 16 * 1024
NAME_BYTES = 16
_MAGIC = b"SHALEPT1"
_HEAD = Struct(f"<8s{NAME_BYTES}sII")
_CRC = Struct("<I")


class PartRange(NamedTuple):
    """Bytes ``[start, end)`` of part ``part`` of the object ``name``; the part has ``length`` bytes."""

    name: bytes
    part: int
    length: int
    start: int
    end: int


def encode_head(name: bytes, part: int, data: BytesLike) -> bytes:
    """Return the bytes before the data of a part."""
    view = memoryview(data)
    sums = (crc32(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES))
    head = _HEAD.pack(_MAGIC, name, part, len(view)) + b"".join(map(_CRC.pack, sums))
    return head + _CRC.pack(crc32(head))


def head_size(length: int) -> int:
    """Return the size of the head of a part of ``length`` bytes."""
    return _HEAD.size + _CRC.size * (-(-length // CHUNK_BYTES) + 1)


def is_head_of(head: bytes, wanted: PartRange) -> bool:
    """Return whether the first bytes of a file are the intact head of this part."""
    size = head_size(wanted.length)
    if len(head) != size or _HEAD.unpack_from(head) != (_MAGIC, wanted.name, wanted.part, wanted.length):
        return False
    is_intact: bool = _CRC.unpack_from(head, size - _CRC.size)[0] == crc32(head[: size - _CRC.size])
    return is_intact


def read_part(file: int, wanted: PartRange) -> bytes | None:
    """Return the bytes, or ``None`` if the open file does not hold them intact."""
    length, start, end = wanted.length, wanted.start, wanted.end
    size = head_size(length)
    head = os.pread(file, size, 0)
    if not is_head_of(head, wanted):
        return None
    first, last = start // CHUNK_BYTES, -(-end // CHUNK_BYTES)
    base = first * CHUNK_BYTES
    read_len = min(last * CHUNK_BYTES, length) - base
    data = memoryview(os.pread(file, read_len, size + base))
    if len(data) != read_len:
        return None
    for chunk in range(first, last):
        at = (chunk - first) * CHUNK_BYTES
        if crc32(data[at : at + CHUNK_BYTES]) != _CRC.unpack_from(head, _HEAD.size + _CRC.size * chunk)[0]:
            return None
    return bytes(data[start - base : end - base])
