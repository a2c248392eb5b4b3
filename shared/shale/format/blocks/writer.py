"""Rows in columns to the data blocks of an SST, as a stream (docs/reference/format.md 7, 8, 10, 11).

Rows fill blocks up to the target size.  A block that has ended is final and can be uploaded; the last one stays open
until ``finish``.  The writer also collects what index and stats need.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from shale.core.bytes_like import BytesLike
from shale.format.blocks.kernel_writer import KernelBlockWriter
from shale.format.blocks.output import NO_LIMIT, BlockOptions, WrittenBlocks
from shale.format.blocks.plain_writer import PlainBlockWriter
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import U64, Rows

if TYPE_CHECKING:
    from shale.format.blocks.merge import BlockMerge

_PART_BYTES_MIN = 64 << 10
"""Smaller parts, as compressed blocks are, are joined: each part costs a write and a hop between threads."""


class BlockWriter:
    """Writes blocks of version 2: with kernels, or in plain Python where there are none."""

    def __init__(self, options: BlockOptions) -> None:
        self.written = WrittenBlocks()
        self._options = options
        self._blocks: PlainBlockWriter | KernelBlockWriter = (
            KernelBlockWriter(options, self.written) if use_kernels() else PlainBlockWriter(options, self.written)
        )

    def add(self, rows: Rows, until_bytes: int = NO_LIMIT) -> int:
        """Append rows and return how many were appended.

        Args:
            rows: in order, unless the options say ``by_seq``.
            until_bytes: stop once ended blocks take more, but never between two versions of a key.
        """
        return self._blocks.add(rows, until_bytes)

    def merge(self, merge: "BlockMerge", until_bytes: int, add_hashes: Callable[[U64], None] | None) -> MergeStatus:
        """Append rows of a merge, with kernels.

        Args:
            merge: the source of the rows.
            until_bytes: as in ``add``.
            add_hashes: receives the hashes of the rows' keys; ``None``: do not compute them.

        Returns:
            Why it stopped: ``NEED_INPUT``, ``DONE``, ``FULL``, or ``NEED_OUTPUT_SPACE``, after some megabytes.
        """
        assert isinstance(self._blocks, KernelBlockWriter), "stored blocks are merged by kernels only"
        return self._blocks.merge(merge, until_bytes, add_hashes)

    def take_parts(self) -> list[BytesLike]:
        """Return the bytes of the blocks that ended since the last call, in file order."""
        self._blocks.release()
        parts, self.written.parts = self.written.parts, []
        if sum(map(len, parts)) < _PART_BYTES_MIN * len(parts):
            return [b"".join(parts)]
        return parts

    def finish(self) -> None:
        """End the open block; then ``written`` is complete."""
        self._blocks.finish()
