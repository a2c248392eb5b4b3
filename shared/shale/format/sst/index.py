"""The index block: where each data block begins and what keys it can hold (docs/reference/format.md 10).

The FlatBuffer has a table for each block.  Kernels read and write all of them in one call; without kernels, reading
gathers their fields in columns and writing goes through the generated builders.  A test compares the bytes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.format.flat.accessors import vector_start
from shale.format.flat.builder import append_image, finish, write_bytes, write_offset_column
from shale.format.flat.columns import FlatColumns
from shale.format.flat.verifier import Verifier
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import flat
from shale.kernels.rows import I64, U8
from shale.types import BoundKind, KeyRange

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
        """Make an index from lists with one element per block."""
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
        """Return the separator of a block; in a WAL file the sequence number of its first row, big-endian."""
        return self.key_bytes[self.key_offsets[block] : self.key_offsets[block + 1]].tobytes()

    @property
    def separators(self) -> Sequence[bytes]:
        """The separators of all blocks as a sequence; each becomes an object when it is read."""
        return _Separators(self)

    def first_keys(self) -> list[bytes]:
        """Return the separators of all blocks, much faster than one by one."""
        blob = self.key_bytes.tobytes()
        return [blob[start:end] for start, end in pairwise(self.key_offsets.tolist())]

    def first_descending(self) -> int | None:
        """Return the first block whose separator is below the one before; ``None`` if there is none."""
        if len(self) < 2:
            return None
        if use_kernels():
            keys, offsets = address_of(self.key_bytes), address_of(self.key_offsets)
            place = compiled.first_descending_key(keys, offsets, len(self))
            return place if place < len(self) else None
        pairs = enumerate(pairwise(self.first_keys()), 1)
        return next((number for number, (before, key) in pairs if key < before), None)

    def block_range_for_key(self, key: bytes) -> tuple[int, int]:
        """Return the blocks ``[first, last)`` that can hold versions of ``key``."""
        separators = self.separators
        last = bisect_right(separators, key)
        return min(self._block_before(bisect_left(separators, key)), last), last

    def block_range(self, keys: KeyRange) -> tuple[int, int]:
        """Return the blocks ``[first, last)`` that can hold keys of the range."""
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
        """Return the last block whose separator is smaller, or block 0: it may end with the wanted key."""
        return max(block - 1, 0)


class _Separators(Sequence[bytes]):
    """Separators as a sequence that ``bisect`` can search without a list of them all."""

    def __init__(self, index: BlockIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, block: int) -> bytes:  # type: ignore[override]  # bisect asks for single elements only
        return self._index.first_key(block)


def decode_index(image: BytesLike, *, data_len: int, path: str | None = None, offset: int = 0) -> BlockIndex:
    """Read an unpacked index block.

    Args:
        image: the FlatBuffer.
        data_len: where the data blocks end in the object (``SstInfo.data_len``).
        path: the object's name, for errors.
        offset: where the index begins in the object, for errors.

    Raises:
        CorruptionError: the bytes are not an index, or blocks are not inside the data in ascending order.
    """
    source = Verifier(image, path=path, base=offset)
    source.verify_root("SsTableIndex", left_out=("BlockMeta",))
    root = schema.SsTableIndex.GetRootAs(image)
    start, count = vector_start(root, 0), root.BlockMetaLength()
    if count and use_kernels() and (index := _read_entries(source, start, count, data_len)) is not None:
        return index
    columns = FlatColumns.of_vector(source, start, count, _ENTRIES)
    starts = columns.scalar(0, np.dtype("<u8"))
    if len(starts) == 0 and data_len:
        raise source.corrupt("an index without blocks", 0)
    if len(starts) and starts[0] != 0:
        raise source.corrupt("the first block does not begin the file", 0)
    ends = np.append(starts[1:], np.uint64(data_len))
    if not bool(np.all(starts < ends)):
        raise source.corrupt(f"block offsets do not ascend to {data_len}", 0)
    key_bytes, key_offsets = columns.vectors(1, "BlockMeta.first_key")
    return BlockIndex(
        offsets=np.append(starts.astype(np.int64), np.int64(data_len)),
        key_bytes=key_bytes,
        key_offsets=key_offsets,
    )


def _read_entries(source: Verifier, start: int, count: int, data_len: int) -> BlockIndex | None:
    """Read and verify all entries with a kernel; ``None`` if one is not as every writer makes it."""
    data = np.frombuffer(source.data, np.uint8)
    offsets = np.empty(count + 1, np.int64)
    key_offsets = np.empty(count + 1, np.int64)
    key_starts = np.empty(count, np.int64)
    keys_len = compiled.read_index(
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
    compiled.gather(address_of(data), address_of(key_starts), address_of(key_offsets), count, address_of(key_bytes))
    return BlockIndex(offsets=offsets, key_bytes=key_bytes, key_offsets=key_offsets)


def encode_index(index: BlockIndex) -> bytes:
    """Return the FlatBuffer that SlateDB would write."""
    builder = Builder(1024)
    count = len(index)
    entries = np.empty(count, np.int64)
    if count:
        # An offset of 0 is not written, so the first entry has another vtable.
        assert index.offsets[0] == 0
        entries[:1] = _write_entries(builder, index, 0, 1)
    if count > 1:
        with_kernel = use_kernels()
        entries[1:] = _write_by_kernel(builder, index) if with_kernel else _write_entries(builder, index, 1, count)
    vector = write_offset_column(builder, entries)
    schema.SsTableIndexStart(builder)
    schema.SsTableIndexAddBlockMeta(builder, vector)
    return finish(builder, schema.SsTableIndexEnd(builder))


def _write_entries(builder: Builder, index: BlockIndex, first: int, end: int) -> list[int]:
    """Write the entries of the blocks ``[first, end)`` and return their offsets."""
    entries = []
    for block, offset in enumerate(index.offsets[first:end].tolist(), first):
        key = write_bytes(builder, index.first_key(block))
        schema.BlockMetaStart(builder)
        schema.BlockMetaAddOffset(builder, offset)
        schema.BlockMetaAddFirstKey(builder, key)
        entries.append(schema.BlockMetaEnd(builder))
    return entries


def _write_by_kernel(builder: Builder, index: BlockIndex) -> I64:
    """Write the entries from block 1 on with a kernel, as ``_write_entries`` does."""
    count = len(index) - 1
    image_max = len(index.key_bytes) + count * flat.ENTRY_SIZE_MAX + flat.VTABLES_SIZE
    image = np.empty(image_max, np.uint8)
    entries = np.empty(count, np.int64)
    written = compiled.write_index(
        address_of(index.offsets[1:]),
        address_of(index.key_bytes),
        address_of(index.key_offsets[1:]),
        count,
        builder.Offset(),
        address_of(image) + image_max,
        address_of(entries),
    )
    append_image(builder, image.data[image_max - written :], alignment=8)
    return entries
