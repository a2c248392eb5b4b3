"""What is in memory of one physical SST: its metadata, decoded images of some blocks, and their addresses.

The point-lookup kernel reads the addresses (``shale.kernels.lookup_layout``); views keep the slot alive, the slot
keeps the buffers alive.  Only the thread of the event loop touches a slot, so a kernel never meets a half-made change.
"""

from typing import TYPE_CHECKING

import numpy as np

from shale.kernels import lookup_layout as layout
from shale.sst.meta import SstMeta
from shale.types import Sst

if TYPE_CHECKING:
    import anyio

    from shale.kernels.rows import I64

META = -1
"""In place of a block number: the metadata."""


class SstSlot:
    """One SST in memory.  ``images[i]`` is the decoded block ``i``, or ``None``; ``touched[i]`` is set by every use."""

    __slots__ = (
        "__weakref__",
        "_block_table",
        "images",
        "loading",
        "meta",
        "meta_touched",
        "path",
        "sst",
        "touched",
        "words",
    )

    def __init__(self, sst: Sst, path: str) -> None:
        self.sst = sst
        self.path = path
        self.words: I64 = np.zeros(layout.SLOT_WORDS, np.int64)
        self.meta: SstMeta | None = None
        self.meta_touched = False
        self.images: list[bytes | None] = []
        self.touched = bytearray()
        self.loading: anyio.Event | None = None
        self._block_table: I64 = np.zeros((0, 2), np.int64)

    def load(self, meta: SstMeta) -> None:
        """Take in the metadata, with no block in memory yet."""
        index = meta.index
        n_blocks = len(index)
        self.meta = meta
        self.images = [None] * n_blocks
        self.touched = bytearray(n_blocks)
        self._block_table = np.zeros((n_blocks, 2), np.int64)
        words = self.words
        words[layout.SLOT_VERSION] = self.sst.format_version
        words[layout.SLOT_INDEX] = address_of(index.key_bytes)
        words[layout.SLOT_INDEX_OFFSETS] = address_of(index.key_offsets)
        words[layout.SLOT_BLOCK_TABLE] = address_of(self._block_table)
        words[layout.SLOT_TOUCHED] = address_of(np.frombuffer(self.touched, np.uint8))
        bloom = meta.filters.key_filter
        if bloom is not None:
            words[layout.SLOT_BLOOM] = address_of(bloom.bits)
            words[layout.SLOT_BLOOM_LEN] = len(bloom.bits)
            words[layout.SLOT_BLOOM_PROBES] = bloom.num_probes
        words[layout.SLOT_BLOCKS] = n_blocks

    def unload(self) -> None:
        """Forget everything; a kernel then reports that the metadata is missing."""
        self.words[:] = 0
        self.meta = None
        self.images = []
        self.touched = bytearray()
        self._block_table = np.zeros((0, 2), np.int64)

    def put_image(self, block: int, image: bytes) -> None:
        """Keep the decoded image of a block."""
        self.images[block] = image
        self._block_table[block] = (address_of(np.frombuffer(image, np.uint8)), len(image))

    def drop_image(self, block: int) -> bytes | None:
        """Forget a block and return what was kept of it."""
        image = self.images[block]
        self.images[block] = None
        self._block_table[block] = 0
        return image


def address_of(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> int:
    """Where the first byte of an array lies; whoever stores it keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
