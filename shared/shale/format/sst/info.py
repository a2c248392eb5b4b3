"""``SsTableInfo``, the footer of an SST, and the trailer that follows it (docs/reference/format.md 12).

::

    SsTableInfo (FlatBuffer, never compressed) | crc32 u32 | offset of SsTableInfo u64 | format version u16

The numbers outside the FlatBuffer are big-endian.  Manifests and compactions files hold copies of the same table.
"""

from struct import Struct
from zlib import crc32

from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError, InvalidVersion
from shale.format.flat.accessors import Table, bytes_of, corrupt, member_of
from shale.format.flat.builder import finish, write_bytes
from shale.format.flat.verifier import Verifier
from shale.types import Compression, FilterFormat, SstInfo, SstType

SST_VERSION = 2
SST_VERSIONS = (1, 2)
TRAILER_SIZE = 10
_TRAILER = Struct(">QH")
_CRC = Struct(">I")
OFFSET_MAX = 2**63 - 1


class TailTooShort(Exception):
    """The bytes at hand do not reach back to the footer: read again from ``start``, a byte offset in the object."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the footer begins at byte {start}")
        self.start = start


def write_sst_info(builder: Builder, info: SstInfo) -> int:
    """Write an ``SsTableInfo`` table."""
    first_entry = write_bytes(builder, info.first_entry)
    last_entry = write_bytes(builder, info.last_entry)
    schema.SsTableInfoStart(builder)
    schema.SsTableInfoAddStatsLen(builder, info.stats_len)
    schema.SsTableInfoAddStatsOffset(builder, info.stats_offset)
    schema.SsTableInfoAddFilterLen(builder, info.filter_len)
    schema.SsTableInfoAddFilterOffset(builder, info.filter_offset)
    schema.SsTableInfoAddIndexLen(builder, info.index_len)
    schema.SsTableInfoAddIndexOffset(builder, info.index_offset)
    schema.SsTableInfoAddLastEntry(builder, last_entry)
    schema.SsTableInfoAddFirstEntry(builder, first_entry)
    schema.SsTableInfoAddFilterFormat(builder, info.filter_format)
    schema.SsTableInfoAddSstType(builder, info.sst_type)
    schema.SsTableInfoAddCompressionFormat(builder, info.compression)
    return schema.SsTableInfoEnd(builder)


def read_sst_info(source: Verifier, table: Table) -> SstInfo:
    """Read an ``SsTableInfo`` table.

    Raises:
        CorruptionError: an unknown codec, type or filter format, or parts that cannot be where they claim to be.
    """
    info = SstInfo(
        first_entry=bytes_of(table.FirstEntryAsNumpy()),
        index_offset=table.IndexOffset(),
        index_len=table.IndexLen(),
        filter_offset=table.FilterOffset(),
        filter_len=table.FilterLen(),
        compression=member_of(Compression, table.CompressionFormat(), "compression format", source, table),
        sst_type=member_of(SstType, table.SstType(), "SST type", source, table),
        last_entry=bytes_of(table.LastEntryAsNumpy()),
        stats_offset=table.StatsOffset(),
        stats_len=table.StatsLen(),
        filter_format=member_of(FilterFormat, table.FilterFormat(), "filter format", source, table),
    )
    _check_parts(info, source, table)
    return info


def encode_sst_info(info: SstInfo) -> bytes:
    """Return the FlatBuffer alone."""
    builder = Builder(256)
    return finish(builder, write_sst_info(builder, info))


def decode_sst_info(data: BytesLike, *, path: str | None = None, base: int = 0) -> SstInfo:
    """Read the FlatBuffer alone.

    Args:
        data: the FlatBuffer.
        path: the object's name, for errors.
        base: offset of the FlatBuffer in the object, for errors.

    Raises:
        CorruptionError: the bytes are not a footer.
    """
    source = Verifier(bytes(data), path=path, base=base)
    source.verify_root("SsTableInfo")
    return read_sst_info(source, schema.SsTableInfo.GetRootAs(source.data))


def encode_trailer(info: SstInfo, *, offset: int, version: int = SST_VERSION) -> bytes:
    """Return everything after the last section: footer, checksum and trailer.

    Args:
        info: the footer.
        offset: where these bytes begin in the object.
        version: the block format, 1 or 2.
    """
    flat = encode_sst_info(info)
    return flat + _CRC.pack(crc32(flat)) + _TRAILER.pack(offset, version)


def decode_trailer(tail: BytesLike, *, object_size: int, path: str | None = None) -> tuple[SstInfo, int]:
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
    info = decode_sst_info(flat, path=path, base=offset)
    end = max(info.index_offset + info.index_len, info.filter_offset + info.filter_len)
    if max(end, info.stats_offset + info.stats_len) > offset:
        raise CorruptionError("the footer names parts that begin after it", path=path, offset=offset)
    return info, version


def _check_parts(info: SstInfo, source: Verifier, table: Table) -> None:
    """Check the bounds that need no object size: offsets beyond 63 bits would overflow the arithmetic of kernels."""
    for start, length in (
        (info.index_offset, info.index_len),
        (info.filter_offset, info.filter_len),
        (info.stats_offset, info.stats_len),
    ):
        if start + length > OFFSET_MAX:
            raise corrupt(source, table, f"a part of {length} bytes at {start} exceeds every object")
    if info.filter_len and info.filter_offset + info.filter_len > info.index_offset:
        raise corrupt(source, table, "the filter overlaps the index")
