"""The cached parts of one SST: its metadata, decoded images of some blocks, and their addresses.

The point-lookup kernel reads the addresses (``shale.kernels.layout.point_lookup``); super versions keep the slot
alive, and the slot keeps the buffers alive.  Only the thread of the event loop changes a slot, so a kernel never sees
a partial change.
"""

import weakref
from typing import TYPE_CHECKING

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.layout import point_lookup as layout
from shale.sst.meta import SstMeta
from shale.types import Sst

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from shale.kernels.rows import I64
    from shale.store.port import LocalObject

META = -1
"""The metadata, in place of a block number."""
_MAPPED_TABLE_BYTES = 64 << 10
"""Larger tables are mapped: what belongs to blocks that are not in memory takes none."""
_NO_TABLE: "I64" = np.zeros((0, 2), np.int64)


class SstSlot:
    """One SST in memory.  ``images[i]`` is the decoded block ``i``; every use sets ``touched[i]``.

    The tables with an entry per block are created with the first block: a full scan keeps none.
    """

    __slots__ = (
        "__weakref__",
        "_block_table",
        "_last_meta",
        "_table_address",
        "files",
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
        self.files: dict[int, LocalObject] = {}
        """Open files with its bytes, by the number of the part (``shale.sst.reads.local_reader``)."""
        self._last_meta: Callable[[], SstMeta | None] = _nothing
        self._block_table: I64 = _NO_TABLE
        self._table_address = 0

    def load(self, meta: SstMeta) -> None:
        """Set the metadata, with no block in memory."""
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
        """Return evicted metadata that a reader still holds: keeping it again costs no memory."""
        return self._last_meta()

    def unload(self) -> None:
        """Drop everything; kernels then report missing metadata."""
        self.words[:] = 0
        self.meta = None
        self.images = {}
        self.touched = bytearray()
        self._block_table = _NO_TABLE

    @property
    def tables_bytes(self) -> int:
        """Memory of the tables with an entry per block."""
        return self._block_table.nbytes + len(self.touched)

    def put_image(self, block: int, image: bytes) -> None:
        """Keep the decoded image of a block."""
        if self._block_table is _NO_TABLE:
            self._make_tables()
        self.images[block] = image
        if compiled is not None:
            compiled.put_image(image, self._table_address, block)

    def drop_image(self, block: int) -> bytes | None:
        """Drop a block and return its image."""
        image = self.images.pop(block, None)
        self._block_table[block] = 0
        return image

    def _make_tables(self) -> None:
        assert self.meta is not None
        n_blocks = len(self.meta.index)
        self.touched = bytearray(n_blocks)
        self._block_table = _new_table(n_blocks)
        self._table_address = address_of(self._block_table)
        self.words[layout.SLOT_BLOCK_TABLE] = self._table_address
        self.words[layout.SLOT_TOUCHED] = address_of(np.frombuffer(self.touched, np.uint8))


def _new_table(n_blocks: int) -> "I64":
    """Return a table of zeros with two words for each block."""
    size = 2 * 8 * n_blocks
    if size < _MAPPED_TABLE_BYTES:
        return np.zeros((n_blocks, 2), np.int64)
    from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

    return np.frombuffer(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS), np.int64).reshape(n_blocks, 2)


def _nothing() -> None:
    return None
