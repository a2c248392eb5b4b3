"""Reads of an SST for one scan, in any thread and without waiting, into a buffer that each read overwrites.

A full scan of a local file costs little more than its bytes then: no task, no change of threads and no fresh pages.
"""

from typing import TYPE_CHECKING

import numpy as np

from shale.format.blocks.decoder import StoredBlocks, stored_images
from shale.sst.meta import SstMeta
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject
from shale.types import KeyRange

if TYPE_CHECKING:
    from shale.kernels.rows import U8

DIRECT_READ_BYTES = 512 << 10
"""Size of one read; the bytes are still in the CPU's cache when they are used."""


class DirectReader:
    """The file of one SST after the other."""

    __slots__ = ("_buffer", "_file", "_slot")

    def __init__(self) -> None:
        """Have no file."""
        self._file: LocalObject | None = None
        self._slot: SstSlot | None = None
        self._buffer: U8 = np.empty(0, np.uint8)

    @property
    def can_read(self) -> bool:
        """Whether there is a file, all reads of which have been possible."""
        return self._file is not None

    def open(self, file: LocalObject | None, slot: SstSlot) -> None:
        """Read this file of an SST from now on; it stays open as long as this object has it."""
        self._file, self._slot = file, slot

    def read(self, meta: SstMeta, first: int, last: int, visible: KeyRange) -> StoredBlocks | None:
        """Return the blocks ``[first, last)``, uncompressed, until the next call.

        Returns:
            ``None``: that would wait, or the file is too short; nothing more is read from it.
        """
        file, slot = self._file, self._slot
        if file is None or slot is None:
            return None
        offsets = meta.index.offsets[first : last + 1]
        start, end = int(offsets[0]), int(offsets[-1])
        if end - start > len(self._buffer):
            self._buffer = np.empty(end - start, np.uint8)
        data = self._buffer[: max(end - start, 0)].data
        if file.read_into(data, start) != len(data):
            self._file = None
            return None
        return stored_images(data, offsets, version=slot.sst.format_version, path=slot.path, visible=visible)
