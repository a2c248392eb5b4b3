"""``SsTableInfo``, the footer of an SST, and the trailer behind it (docs/format.md 12).

::

    SsTableInfo (FlatBuffer, never compressed) | crc32 u32 | offset of SsTableInfo u64 | format version u16

The numbers outside the FlatBuffer are big-endian.  Manifests and compactions files hold copies of the same table.
"""

from struct import Struct
from zlib import crc32

from shale.errors import CorruptionError, InvalidVersion
from shale.format.buffer import Buffer
from shale.format.flat_reader import FlatReader, FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.tables import SST_INFO
from shale.types import Compression, FilterFormat, SstInfo, SstType

SST_VERSION = 2
SST_VERSIONS = (1, 2)
TRAILER_SIZE = 10
_TRAILER = Struct(">QH")
_CRC = Struct(">I")
_OFFSET_MAX = 2**63 - 1


class TailTooShort(Exception):
    """The bytes at hand do not reach back to the footer: read again from ``start``, a byte offset in the object."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the footer begins at byte {start}")
        self.start = start


def write_sst_info(writer: FlatWriter, info: SstInfo) -> int:
    """An ``SsTableInfo`` table."""
    first_entry = writer.blob(info.first_entry)
    last_entry = writer.blob(info.last_entry)
    return writer.table(
        SST_INFO,
        (
            first_entry,
            info.index_offset,
            info.index_len,
            info.filter_offset,
            info.filter_len,
            info.compression,
            info.sst_type,
            last_entry,
            info.stats_offset,
            info.stats_len,
            info.filter_format,
        ),
    )


def read_sst_info(table: FlatTable) -> SstInfo:
    """Read an ``SsTableInfo`` table.

    Raises:
        CorruptionError: an unknown codec, type or filter format, or parts that cannot be where they claim to be.
    """
    info = SstInfo(
        first_entry=table.blob(0),
        index_offset=table.u64(1),
        index_len=table.u64(2),
        filter_offset=table.u64(3),
        filter_len=table.u64(4),
        compression=table.kind(5, Compression, "compression format"),
        sst_type=table.kind(6, SstType, "SST type"),
        last_entry=table.blob(7),
        stats_offset=table.u64(8),
        stats_len=table.u64(9),
        filter_format=table.kind(10, FilterFormat, "filter format"),
    )
    _check_parts(info, table)
    return info


def encode_sst_info(info: SstInfo) -> bytes:
    """The FlatBuffer alone."""
    writer = FlatWriter()
    return writer.finish(write_sst_info(writer, info))


def encode_trailer(info: SstInfo, *, offset: int, version: int = SST_VERSION) -> bytes:
    """Everything behind the last section: footer, checksum and trailer.

    Args:
        info: the footer.
        offset: where these bytes begin in the object.
        version: the block format, 1 or 2.
    """
    flat = encode_sst_info(info)
    return flat + _CRC.pack(crc32(flat)) + _TRAILER.pack(offset, version)


def decode_trailer(tail: Buffer, *, object_size: int, path: str | None = None) -> tuple[SstInfo, int]:
    """Read footer and format version from the last bytes of an object.

    Args:
        tail: the object's last bytes, at least ``TRAILER_SIZE`` unless the object is shorter.
        object_size: bytes of the whole object.
        path: the object's name, for errors.

    Raises:
        TailTooShort: the footer begins before ``tail``.
        InvalidVersion: a block format that this release does not know.
        CorruptionError: checksum, offsets or footer are broken.
    """
    if object_size < TRAILER_SIZE + _CRC.size or len(tail) < TRAILER_SIZE:
        raise CorruptionError(f"an SST of {object_size} bytes has no trailer", path=path, offset=0)
    offset, version = _TRAILER.unpack_from(tail, len(tail) - TRAILER_SIZE)
    trailer_offset = object_size - TRAILER_SIZE
    if version not in SST_VERSIONS:
        raise InvalidVersion(f"unsupported SST format version {version}", path=path, offset=trailer_offset + 8)
    if offset > trailer_offset - _CRC.size:
        raise CorruptionError(f"the footer cannot begin at {offset}", path=path, offset=trailer_offset)
    tail_start = object_size - len(tail)
    if offset < tail_start:
        raise TailTooShort(offset)
    flat = memoryview(tail)[offset - tail_start : len(tail) - TRAILER_SIZE - _CRC.size]
    (expected,) = _CRC.unpack_from(tail, len(tail) - TRAILER_SIZE - _CRC.size)
    if crc32(flat) != expected:
        raise CorruptionError("checksum mismatch in the footer", path=path, offset=offset)
    info = read_sst_info(FlatReader(bytes(flat), path=path, base=offset).root())
    end = max(info.index_offset + info.index_len, info.filter_offset + info.filter_len)
    if max(end, info.stats_offset + info.stats_len) > offset:
        raise CorruptionError("the footer names parts behind itself", path=path, offset=offset)
    return info, version


def _check_parts(info: SstInfo, table: FlatTable) -> None:
    """Bounds that need no object size: nobody may compute with offsets that do not fit 63 bits."""
    for start, length in (
        (info.index_offset, info.index_len),
        (info.filter_offset, info.filter_len),
        (info.stats_offset, info.stats_len),
    ):
        if start + length > _OFFSET_MAX:
            raise table.corrupt(f"a part of {length} bytes at {start} exceeds every object")
    if info.filter_len and info.filter_offset + info.filter_len > info.index_offset:
        raise table.corrupt("the filter overlaps the index")
