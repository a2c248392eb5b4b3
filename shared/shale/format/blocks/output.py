"""Options and results of writing blocks, which the plain writer and the one with kernels share."""

from dataclasses import field

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.index import BlockIndex
from shale.kernels.rows import I64
from shale.types import Compression

NO_LIMIT = 2**62
UNSORTED = "rows out of order: an SST that they come from is not sorted"
"""An error of the program that wrote the SST, which neither checksums nor merging detect."""
PART_BYTES = 1 << 20
"""Output is handed out in parts of this size."""
MERGED_PART_BYTES = 4 << 20
"""Merges return larger parts, each after some milliseconds: fewer requests, and fewer switches between threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """How blocks are written.

    Args:
        target_bytes: size of a block's image; a larger row becomes a block by itself.
        compression: the codec of the file.
        by_seq: write the blocks of a WAL file: rows in any order, index keys are sequence numbers.
        merged_part_bytes: size of the parts that a merge returns.  Parts made of rows are as large as one call adds,
            between ``PART_BYTES`` and this size.
        transformer: applied to a compressed block.
    """

    target_bytes: int
    compression: Compression = Compression.NONE
    by_seq: bool = False
    merged_part_bytes: int = MERGED_PART_BYTES
    transformer: BlockTransformer | None = None


@dataclass(slots=True)
class WrittenBlocks:
    """The blocks so far: index keys of all started blocks; bytes, ends and row counts of all finished ones."""

    data_len: int = 0
    parts: list[BytesLike] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    keys_len: int = 0
    key_ends: list[I64] = field(default_factory=list)
    ends: list[I64] = field(default_factory=list)
    counts: list[I64] = field(default_factory=list)

    def index(self) -> BlockIndex:
        """Return the index, once every block has ended."""
        start = [np.zeros(1, np.int64)]
        return BlockIndex(
            offsets=np.concatenate(start + self.ends),
            key_bytes=np.frombuffer(b"".join(self.keys), np.uint8),
            key_offsets=np.concatenate(start + self.key_ends),
        )

    def add_keys(self, keys: bytes, ends: I64) -> None:
        """Add index keys that are stored back to back, and the offset at which each one ends."""
        self.keys.append(keys)
        self.key_ends.append(ends + self.keys_len)
        self.keys_len += len(keys)

    def block_counts(self) -> I64:
        """Return the numbers of values, tombstones and operands of every ended block, shape (n, 3)."""
        return np.concatenate([np.zeros((0, 3), np.int64), *self.counts])
