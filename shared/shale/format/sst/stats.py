"""The stats block: how many rows of each kind an SST holds (docs/reference/format.md 11).

The FlatBuffer has a small table for each block, which kernels read and write in one call (``shale.format.sst.index``).
"""

from dataclasses import field, replace

import numpy as np
from flatbuffers import Builder
from numpy.typing import NDArray

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.format.flat.accessors import vector_start
from shale.format.flat.builder import append_image, finish, write_offset_column
from shale.format.flat.columns import FlatColumns
from shale.format.flat.verifier import Verifier
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import flat
from shale.kernels.rows import I64

_KINDS = 3
"""Puts, deletes and merges."""
_ALIGNMENT = 4
_BLOCKS = "SstStats.block_stats"


def _no_blocks() -> NDArray[np.uint16]:
    return np.zeros((0, _KINDS), np.uint16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SstStats:
    """Counts of rows, and bytes of all keys and values.  ``blocks`` has shape (n, 3): puts, deletes, merges."""

    num_puts: int = 0
    num_deletes: int = 0
    num_merges: int = 0
    raw_key_size: int = 0
    raw_val_size: int = 0
    blocks: NDArray[np.uint16] = field(default_factory=_no_blocks)

    @property
    def num_rows(self) -> int:
        """Rows of every kind."""
        return self.num_puts + self.num_deletes + self.num_merges

    def totals(self) -> "SstStats":
        """Return the stats without the counts of single blocks, which take 6 bytes a block."""
        return replace(self, blocks=_no_blocks())


def encode_stats(stats: SstStats) -> bytes:
    """Return the FlatBuffer that SlateDB would write."""
    builder = Builder(1024)
    blocks = 0
    if len(stats.blocks):
        with_kernel = use_kernels()
        tables = _write_by_kernel(builder, stats.blocks) if with_kernel else _write_blocks(builder, stats.blocks)
        blocks = write_offset_column(builder, tables)
    schema.SstStatsStart(builder)
    schema.SstStatsAddRawValSize(builder, stats.raw_val_size)
    schema.SstStatsAddRawKeySize(builder, stats.raw_key_size)
    schema.SstStatsAddNumMerges(builder, stats.num_merges)
    schema.SstStatsAddNumDeletes(builder, stats.num_deletes)
    schema.SstStatsAddNumPuts(builder, stats.num_puts)
    schema.SstStatsAddBlockStats(builder, blocks)
    return finish(builder, schema.SstStatsEnd(builder))


def decode_stats(image: BytesLike, *, path: str | None = None, offset: int = 0) -> SstStats:
    """Read an unpacked stats block.

    Args:
        image: the FlatBuffer.
        path: the object's name, for errors.
        offset: where the stats begin in the object, for errors.

    Raises:
        CorruptionError: the bytes are not a stats block.
    """
    source = Verifier(image, path=path, base=offset)
    source.verify_root("SstStats", left_out=("BlockStats",))
    root = schema.SstStats.GetRootAs(image)
    blocks = _no_blocks()
    if not root.BlockStatsIsNone():
        blocks = _read_blocks(source, vector_start(root, 5), root.BlockStatsLength())
    return SstStats(
        num_puts=root.NumPuts(),
        num_deletes=root.NumDeletes(),
        num_merges=root.NumMerges(),
        raw_key_size=root.RawKeySize(),
        raw_val_size=root.RawValSize(),
        blocks=blocks,
    )


def _read_blocks(source: Verifier, start: int, count: int) -> NDArray[np.uint16]:
    if use_kernels():
        data = np.frombuffer(source.data, np.uint8)
        blocks = np.empty((count, _KINDS), np.uint16)
        read = compiled.read_shorts(address_of(data), len(data), start, count, _KINDS, address_of(blocks))
        if read != flat.REFUSED:
            return blocks
    columns = FlatColumns.of_vector(source, start, count, _BLOCKS)
    return np.stack([columns.scalar(slot, np.dtype("<u2")) for slot in range(_KINDS)], axis=1)


def _write_blocks(builder: Builder, blocks: NDArray[np.uint16]) -> I64:
    """Write a table for each block and return their offsets."""
    tables = np.empty(len(blocks), np.int64)
    for block, (puts, deletes, merges) in enumerate(blocks.tolist()):
        schema.BlockStatsStart(builder)
        schema.BlockStatsAddNumMerges(builder, merges)
        schema.BlockStatsAddNumDeletes(builder, deletes)
        schema.BlockStatsAddNumPuts(builder, puts)
        tables[block] = schema.BlockStatsEnd(builder)
    return tables


def _write_by_kernel(builder: Builder, blocks: NDArray[np.uint16]) -> I64:
    """Write the tables with a kernel, as ``_write_blocks`` does."""
    count = len(blocks)
    image_max = count * flat.STATS_SIZE_MAX + flat.STATS_VTABLES_SIZE
    counts = np.ascontiguousarray(blocks, np.uint16)
    image, tables = np.empty(image_max, np.uint8), np.empty(count, np.int64)
    vtables = np.zeros(flat.STATS_VTABLES, np.int64)
    end = address_of(image) + image_max
    written = compiled.write_stats(address_of(counts), count, end, address_of(vtables), address_of(tables))
    append_image(builder, image.data[image_max - written :], alignment=_ALIGNMENT)
    return tables
