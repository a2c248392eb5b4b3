"""The stats block: how many rows of each kind an SST holds (docs/format.md 11).

Blocks have one small table each, most of them alike, so without kernels a stretch of equal ones is written in one go.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shale.format.buffer import Buffer
from shale.format.flat_columns import FlatColumns
from shale.format.flat_reader import FlatReader
from shale.format.flat_writer import FlatWriter
from shale.format.tables import BLOCK_STATS, SST_STATS
from shale.kernels.choice import use_kernels
from shale.kernels.columns import address_of
from shale.kernels.rows import I64

_KINDS = len(BLOCK_STATS.fields)
_STRETCH_MIN = 8
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


def encode_stats(stats: SstStats) -> bytes:
    """The FlatBuffer that SlateDB would write."""
    writer = FlatWriter()
    write = _write_by_kernel if use_kernels(0) else _write_blocks
    blocks = writer.reference_column(write(writer, stats.blocks)) if len(stats.blocks) else 0
    values = (stats.num_puts, stats.num_deletes, stats.num_merges, stats.raw_key_size, stats.raw_val_size, blocks)
    return writer.finish(writer.table(SST_STATS, values))


def decode_stats(image: Buffer, *, path: str | None = None, offset: int = 0) -> SstStats:
    """Read an unpacked stats block.

    Raises:
        CorruptionError: the bytes are not a stats block.
    """
    reader = FlatReader(image, path=path, base=offset)
    root = reader.root()
    blocks = _no_blocks()
    if root.has(5):
        blocks = _read_blocks(reader, *root.vector(5, 4, _BLOCKS))
    return SstStats(
        num_puts=root.u64(0),
        num_deletes=root.u64(1),
        num_merges=root.u64(2),
        raw_key_size=root.u64(3),
        raw_val_size=root.u64(4),
        blocks=blocks,
    )


def _read_blocks(reader: FlatReader, start: int, count: int) -> NDArray[np.uint16]:
    if use_kernels(0):
        from shale.kernels import flat

        data = np.frombuffer(reader.data, np.uint8)
        blocks = np.empty((count, _KINDS), np.uint16)
        read = flat.read_shorts(address_of(data), len(data), start, count, _KINDS, address_of(blocks))
        if read != flat.REFUSED:
            return blocks
    columns = FlatColumns(reader, start, count, _BLOCKS)
    return np.stack([columns.scalar(slot, np.dtype("<u2")) for slot in range(_KINDS)], axis=1)


def _write_by_kernel(writer: FlatWriter, blocks: NDArray[np.uint16]) -> I64:
    """As ``_write_blocks``."""
    from shale.kernels import flat

    count = len(blocks)
    room = count * flat.STATS_SIZE_MAX + flat.STATS_VTABLES_SIZE
    counts = np.ascontiguousarray(blocks, np.uint16)
    image, places = np.empty(room, np.uint8), np.empty(count, np.int64)
    vtables = np.zeros(flat.STATS_VTABLES, np.int64)
    end = address_of(image) + room
    written = flat.write_stats(address_of(counts), count, end, address_of(vtables), address_of(places))
    writer.append(image.data[room - written :], alignment=_ALIGNMENT)
    return places


def _write_blocks(writer: FlatWriter, blocks: NDArray[np.uint16]) -> I64:
    """Write a table per block and return their places."""
    places = np.empty(len(blocks), np.int64)
    shapes = (blocks != 0) @ np.array([1, 2, 4])
    ends = np.append(np.flatnonzero(np.diff(shapes)) + 1, len(blocks))
    at = 0
    for end in ends.tolist():
        while at < end:
            phase = writer.size % _ALIGNMENT
            places[at] = writer.table(BLOCK_STATS, blocks[at].tolist())
            vtable_was_known = writer.size == places[at]
            at += 1
            if end - at >= _STRETCH_MIN and vtable_was_known and phase == writer.size % _ALIGNMENT == 0:
                places[at:end] = _write_stretch(writer, blocks[at:end])
                at = end
    return places


def _write_stretch(writer: FlatWriter, blocks: NDArray[np.uint16]) -> I64:
    """Repeat the table written last, whose fields are the same and whose vtable is known, with other numbers."""
    model = writer.top
    sizes = len(model) * np.arange(1, len(blocks) + 1, dtype=np.int64)
    tables = np.tile(np.frombuffer(model, "<u2"), (len(blocks), 1))
    # Later tables lie further from the vtable, at lower addresses.
    back = int.from_bytes(model[:4], "little", signed=True) - sizes
    tables[:, :2] = back.astype("<i4").view("<u2").reshape(-1, 2)
    fields = blocks[:, blocks[0] != 0]
    if fields.shape[1]:
        tables[:, -fields.shape[1] :] = fields
    places = writer.size + sizes
    writer.append(tables[::-1].tobytes(), alignment=_ALIGNMENT)
    return places
