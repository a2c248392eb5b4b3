"""What is in memory of one physical SST: its metadata, decoded images of some blocks, and their addresses.

The point-lookup kernel reads the addresses (``shale.kernels.lookup_layout``); views keep the slot alive, the slot
keeps the buffers alive.  Only the thread of the event loop touches a slot, so a kernel never meets a half-made change.
"""

import weakref
from typing import TYPE_CHECKING

import numpy as np

from shale.kernels import lookup_layout as layout
from shale.sst.meta import SstMeta
from shale.types import Sst

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from shale.kernels.rows import I64

META = -1
"""In place of a block number: the metadata."""
_NO_TABLE: "I64" = np.zeros((0, 2), np.int64)


class SstSlot:
    """One SST in memory.  ``images[i]`` is the decoded block ``i``; ``touched[i]`` is set by every use.

    Tables with a place per block are made when the first block is kept: who reads from end to end keeps none.
    """

    __slots__ = (
        "__weakref__",
        "_block_table",
        "_last_meta",
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
        self.images: dict[int, bytes] = {}
        self.touched = bytearray()
        self.loading: anyio.Event | None = None
        self._last_meta: Callable[[], SstMeta | None] = _nothing
        self._block_table: I64 = _NO_TABLE

    def load(self, meta: SstMeta) -> None:
        """Take in the metadata, with no block in memory yet."""
        index = meta.index
        self.meta = meta
        self._last_meta = weakref.ref(meta)
        words = self.words
        words[layout.SLOT_VERSION] = self.sst.format_version
        words[layout.SLOT_INDEX] = address_of(index.key_bytes)
        words[layout.SLOT_INDEX_OFFSETS] = address_of(index.key_offsets)
        bloom = meta.filters.key_filter
        if bloom is not None:
            words[layout.SLOT_BLOOM] = address_of(bloom.bits)
            words[layout.SLOT_BLOOM_LEN] = len(bloom.bits)
            words[layout.SLOT_BLOOM_PROBES] = bloom.num_probes
        words[layout.SLOT_BLOCKS] = len(index)

    def recall(self) -> SstMeta | None:
        """Metadata that was here and that somebody still holds: keeping it again costs no memory."""
        return self._last_meta()

    def unload(self) -> None:
        """Forget everything; a kernel then reports that the metadata is missing."""
        self.words[:] = 0
        self.meta = None
        self.images = {}
        self.touched = bytearray()
        self._block_table = _NO_TABLE

    @property
    def tables_bytes(self) -> int:
        """Memory of the tables with a place per block."""
        return self._block_table.nbytes + len(self.touched)

    def put_image(self, block: int, image: bytes) -> None:
        """Keep the decoded image of a block."""
        if self._block_table is _NO_TABLE:
            self._make_tables()
        self.images[block] = image
        self._block_table[block] = (address_of(np.frombuffer(image, np.uint8)), len(image))

    def drop_image(self, block: int) -> bytes | None:
        """Forget a block and return what was kept of it."""
        image = self.images.pop(block, None)
        self._block_table[block] = 0
        return image

    def _make_tables(self) -> None:
        assert self.meta is not None
        n_blocks = len(self.meta.index)
        self.touched = bytearray(n_blocks)
        self._block_table = np.zeros((n_blocks, 2), np.int64)
        self.words[layout.SLOT_BLOCK_TABLE] = address_of(self._block_table)
        self.words[layout.SLOT_TOUCHED] = address_of(np.frombuffer(self.touched, np.uint8))


def _nothing() -> None:
    return None


def address_of(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> int:
    """Where the first byte of an array lies; whoever stores it keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
