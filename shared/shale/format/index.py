"""The index block: where each data block begins and what keys it can hold (docs/format.md 10).

The FlatBuffer has two tables and many entries, so both directions work on columns: reading gathers the fields of all
entries at once, writing computes the place of every table before the first byte is written.  The bytes are those of
``flat_writer``, entry by entry; a test compares the two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from shale.format.buffer import Buffer
from shale.format.flat_columns import FlatColumns, pieces_of, ragged_positions
from shale.format.flat_reader import FlatReader
from shale.format.flat_writer import FlatWriter
from shale.format.tables import BLOCK_META, SST_INDEX
from shale.kernels.choice import use_kernels
from shale.kernels.columns import address_of
from shale.kernels.rows import I64, U8
from shale.types import BoundKind, KeyRange

_TABLE_SIZE = 16
"""A ``BlockMeta`` with both fields, without padding: back reference 4, first_key 4, offset 8."""
_VTABLE_SIZE = 8
_ENTRIES = "SsTableIndex.block_meta"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockIndex:
    """Block ``i`` is the bytes ``[offsets[i], offsets[i+1])`` of the file; its separator is in the key columns.

    ``offsets`` and ``key_offsets`` have shape (n+1,).  A separator is at most every key of its block and above every
    key before it, except that versions of one key may straddle blocks; then it is equal to that key.
    """

    offsets: I64
    key_bytes: U8
    key_offsets: I64

    @classmethod
    def of(cls, offsets: Sequence[int], first_keys: Sequence[bytes], *, data_len: int) -> "BlockIndex":
        """An index from plain lists, one element per block."""
        assert len(offsets) == len(first_keys)
        return cls(
            offsets=np.array([*offsets, data_len], np.int64),
            key_bytes=np.frombuffer(b"".join(first_keys), np.uint8),
            key_offsets=np.array(list(accumulate(map(len, first_keys), initial=0)), np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def data_len(self) -> int:
        """Where the last block ends."""
        return int(self.offsets[-1])

    @property
    def size_bytes(self) -> int:
        """Memory of the columns, for caches."""
        return self.offsets.nbytes + self.key_bytes.nbytes + self.key_offsets.nbytes

    def first_key(self, block: int) -> bytes:
        """The separator of one block; in a WAL file the sequence number of its first row, big-endian."""
        return self.key_bytes[self.key_offsets[block] : self.key_offsets[block + 1]].tobytes()

    @property
    def separators(self) -> Sequence[bytes]:
        """The separators of all blocks, for who needs a few of them: each becomes an object when it is asked for."""
        return _Separators(self)

    def first_keys(self) -> list[bytes]:
        """The separators of all blocks: much faster than one by one."""
        blob = self.key_bytes.tobytes()
        return [blob[start:end] for start, end in pairwise(self.key_offsets.tolist())]

    def block_range_for_key(self, key: bytes) -> tuple[int, int]:
        """The blocks ``[first, last)`` that can hold versions of ``key``."""
        separators = self.separators
        last = bisect_right(separators, key)
        return min(self._block_before(bisect_left(separators, key)), last), last

    def block_range(self, keys: KeyRange) -> tuple[int, int]:
        """The blocks ``[first, last)`` that can hold keys of the range."""
        separators = self.separators
        start, end = keys.start, keys.end
        if end.key is None:
            last = len(self)
        elif end.kind is BoundKind.INCLUDED:
            last = bisect_right(separators, end.key)
        else:
            last = bisect_left(separators, end.key)
        if start.key is None:
            return 0, last
        return min(self._block_before(bisect_left(separators, start.key)), last), last

    @staticmethod
    def _block_before(block: int) -> int:
        """The last block whose separator is smaller, or block 0: it may end with the key looked for."""
        return max(block - 1, 0)


class _Separators(Sequence[bytes]):
    """Separators as a sequence, so that ``bisect`` can search them without a list of them all."""

    def __init__(self, index: BlockIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, block: int) -> bytes:  # type: ignore[override]  # bisect asks for single elements only
        return self._index.first_key(block)


def decode_index(image: Buffer, *, data_len: int, path: str | None = None, offset: int = 0) -> BlockIndex:
    """Read an unpacked index block.

    Args:
        image: the FlatBuffer.
        data_len: where the data blocks end in the object (``SstInfo.data_len``).
        path: the object's name, for errors.
        offset: where the index begins in the object, for errors.

    Raises:
        CorruptionError: the bytes are not an index, or blocks are not inside the data in ascending order.
    """
    reader = FlatReader(image, path=path, base=offset)
    start, count = reader.root().vector(0, 4, _ENTRIES)
    if count and use_kernels(0) and (index := _read_entries(reader, start, count, data_len)) is not None:
        return index
    columns = FlatColumns(reader, start, count, _ENTRIES)
    starts = columns.scalar(0, np.dtype("<u8"))
    if len(starts) == 0 and data_len:
        raise reader.corrupt("an index without blocks", 0)
    if len(starts) and starts[0] != 0:
        raise reader.corrupt("the first block does not begin the file", 0)
    ends = np.append(starts[1:], np.uint64(data_len))
    if not bool(np.all(starts < ends)):
        raise reader.corrupt(f"block offsets do not ascend to {data_len}", 0)
    key_bytes, key_offsets = columns.vectors(1, "BlockMeta.first_key")
    return BlockIndex(
        offsets=np.append(starts.astype(np.int64), np.int64(data_len)),
        key_bytes=key_bytes,
        key_offsets=key_offsets,
    )


def _read_entries(reader: FlatReader, start: int, count: int, data_len: int) -> BlockIndex | None:
    """The same by a kernel; ``None`` for whatever is not as every writer makes it."""
    from shale.kernels import flat

    data = np.frombuffer(reader.data, np.uint8)
    offsets = np.empty(count + 1, np.int64)
    key_offsets = np.empty(count + 1, np.int64)
    key_starts = np.empty(count, np.int64)
    keys_len = flat.read_index(
        address_of(data),
        len(data),
        start,
        count,
        data_len,
        address_of(offsets),
        address_of(key_starts),
        address_of(key_offsets),
    )
    if keys_len == flat.REFUSED:
        return None
    key_bytes = np.empty(keys_len, np.uint8)
    flat.gather(address_of(data), address_of(key_starts), address_of(key_offsets), count, address_of(key_bytes))
    return BlockIndex(offsets=offsets, key_bytes=key_bytes, key_offsets=key_offsets)


def encode_index(index: BlockIndex) -> bytes:
    """The FlatBuffer that SlateDB would write."""
    writer = FlatWriter()
    count = len(index)
    if count == 0:
        return writer.finish(writer.table(SST_INDEX, (writer.references(()),)))
    # The first entry is the odd one, because a block offset of 0 is not written.
    assert index.offsets[0] == 0
    key = writer.blob(index.first_key(0))
    first = writer.table(BLOCK_META, (int(index.offsets[0]), key))
    places = np.empty(count, np.int64)
    places[0] = first
    if count > 1:
        write = _write_by_kernel if use_kernels(0) else _write_entries
        places[1:] = write(writer, index)
    vector = writer.reference_column(places)
    return writer.finish(writer.table(SST_INDEX, (vector,)))


def _write_by_kernel(writer: FlatWriter, index: BlockIndex) -> I64:
    """As ``_write_entries``, which says what is written."""
    from shale.kernels import flat

    count = len(index) - 1
    room = len(index.key_bytes) + count * flat.ENTRY_SIZE_MAX + flat.VTABLES_SIZE
    image = np.empty(room, np.uint8)
    places = np.empty(count, np.int64)
    written = flat.write_index(
        address_of(index.offsets[1:]),
        address_of(index.key_bytes),
        address_of(index.key_offsets[1:]),
        count,
        writer.size,
        address_of(image) + room,
        address_of(places),
    )
    writer.append(image.data[room - written :], alignment=8)
    return places


def _write_entries(writer: FlatWriter, index: BlockIndex) -> I64:
    """Write the entries from block 1 on and return where their tables are, counted from the buffer's end.

    Per entry, from high to low addresses: the key padded to 4 bytes, its length, padding to 8, the table, and behind
    the first table of each size its vtable.  So every entry but the first of these begins at a multiple of 8.
    """
    size = writer.size
    lengths = np.diff(index.key_offsets[1:])
    keys = (lengths + 3 & ~3) + 4
    phases = np.zeros_like(keys)
    phases[0] = size & 7
    pads = -(keys + phases) & 7
    vtables = np.zeros_like(keys)
    for pad in (0, 4):
        where = np.flatnonzero(pads == pad)
        if len(where):
            vtables[where[0]] = _VTABLE_SIZE
    starts = size + np.concatenate(([0], np.cumsum(keys + pads + _TABLE_SIZE + vtables)))
    key_places = starts[:-1] + keys
    table_places: I64 = key_places + pads + _TABLE_SIZE
    end = int(starts[-1])

    words = np.zeros((end - size) // 4, np.uint32)
    tables = (end - table_places) // 4
    for pad in (0, 4):
        of_this_size = pads == pad
        if of_this_size.any():
            first = int(np.argmax(of_this_size))
            vtable = table_places[first] + _VTABLE_SIZE
            words[tables[of_this_size]] = (vtable - table_places[of_this_size]).astype(np.uint32)
            at = tables[first] - 2
            words[at] = 8 | (_TABLE_SIZE + pad) << 16
            words[at + 1] = 8 | 4 << 16
    block_offsets = index.offsets[1:-1]
    words[tables + 1] = table_places - 4 - key_places
    words[tables + 2] = block_offsets & 0xFFFFFFFF
    words[tables + 3] = block_offsets >> 32
    key_words = (end - key_places) // 4
    words[key_words] = lengths
    image = words.view(np.uint8)
    for first, last in pieces_of(len(lengths)):
        positions = ragged_positions(key_words[first:last] * 4 + 4, lengths[first:last])
        image[positions] = index.key_bytes[index.key_offsets[1 + first] : index.key_offsets[1 + last]]
    writer.append(image.tobytes(), alignment=8)
    return table_places
