"""Builds a WAL file: an SST in commit order, without filter and stats (docs/reference/format.md 13)."""

from collections.abc import Iterable

from shale.core.bytes_like import BytesLike
from shale.format.blocks.output import BlockOptions
from shale.format.blocks.section import seal_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.blocks.writer import BlockWriter
from shale.format.sst.index import encode_index
from shale.format.sst.info import encode_trailer
from shale.kernels.rows import Rows
from shale.types import Compression, FilterFormat, SstInfo, SstType

WAL_BLOCK_BYTES = 65535
"""The block size of SlateDB 0.17, which ignores the setting."""


def build_wal_sst(rows: Rows, compression: Compression, transformer: BlockTransformer | None = None) -> bytes:
    """Return a WAL file as ``wal_sst_parts`` does, in one piece."""
    return b"".join(wal_sst_parts((rows,), compression, transformer))


def wal_sst_parts(
    pieces: Iterable[Rows], compression: Compression, transformer: BlockTransformer | None = None
) -> list[BytesLike]:
    """Return the parts of a WAL file, in file order.

    Args:
        pieces: the rows, by sequence number, those of one batch by key; no piece is empty, and there is one at least.
        compression: codec of blocks and index.
        transformer: applied to them after compression.
    """
    first_seq: int | None = None
    blocks = BlockWriter(
        BlockOptions(target_bytes=WAL_BLOCK_BYTES, compression=compression, by_seq=True, transformer=transformer)
    )
    for rows in pieces:
        if first_seq is None:
            first_seq = int(rows.seq[0])
        blocks.add(rows)
    assert first_seq is not None, "a WAL file without rows is a fence, which has no bytes"
    blocks.finish()
    parts = blocks.take_parts()
    data_len = blocks.written.data_len
    index_block = seal_section(encode_index(blocks.written.index()), compression, transformer)
    info = SstInfo(
        first_entry=first_seq.to_bytes(8, "big"),
        index_offset=data_len,
        index_len=len(index_block),
        filter_offset=data_len,
        compression=compression,
        sst_type=SstType.WAL,
        filter_format=FilterFormat.COMPOSITE,
    )
    return [*parts, index_block, encode_trailer(info, offset=data_len + len(index_block))]
