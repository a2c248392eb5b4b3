"""Groups of lookups that read from the store together: as many as their blocks leave room for."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from shale.concurrency.gather import gather
from shale.engine.read.lookup import PendingLookup
from shale.engine.read.tree_lookup import block_span
from shale.sst.reader import SstReader
from shale.sst.slot import SstSlot
from shale.types import Compression

if TYPE_CHECKING:
    from shale.sst.meta import SstMeta

GROUP_BYTES_MAX = 8 << 20
"""Blocks of one group; one key may have more."""
_RATIO_ASSUMED = 64
"""How much larger in memory compressed blocks are taken to be: few are."""


class PendingGroups:
    """Lookups in groups, in their order.  It keeps the metadata that says how large their blocks are.

    Args:
        reader: reads SSTs.
        pending: the lookups.
    """

    def __init__(self, reader: SstReader, pending: Sequence[PendingLookup]) -> None:
        self._reader = reader
        self._pending = pending
        self._metas: dict[SstSlot, SstMeta] = {}

    async def ends(self) -> list[int]:
        """Return where each group ends, after reading the metadata of the SSTs.

        Raises:
            SstMissing: an SST is gone.
            CorruptionError: an SST is malformed.
        """
        slots = list(dict.fromkeys(sst.slot for each in self._pending for sst in each.ssts))
        metas = await gather([partial(self._reader.load, slot) for slot in slots])
        self._metas = dict(zip(slots, metas, strict=True))
        counts = self._reader.counts  # the lookups count the metadata again
        counts.index_hits -= len(metas)
        counts.filter_hits -= sum(meta.filters.answers_keys for meta in metas)
        return self._split()

    def _split(self) -> list[int]:
        ends: list[int] = []
        size, seen = 0, set[tuple[SstSlot, int]]()
        for place, each in enumerate(self._pending):
            blocks = self._blocks(each)
            added = sum(blocks[block] for block in blocks.keys() - seen)
            if seen and size + added > GROUP_BYTES_MAX:
                ends.append(place)
                size, seen, added = 0, set(), sum(blocks.values())
            size += added
            seen.update(blocks)
        return [*ends, len(self._pending)]

    def _blocks(self, pending: PendingLookup) -> dict[tuple[SstSlot, int], int]:
        """Return the blocks to read for a lookup, with their sizes."""
        blocks: dict[tuple[SstSlot, int], int] = {}
        for sst in pending.ssts:
            slot, meta = sst.slot, self._metas[sst.slot]
            span = block_span(meta, pending.key)
            if span is None:
                continue
            offsets = meta.index.offsets[span[0] : span[1] + 1].tolist()
            ratio = 1 if slot.sst.info.compression is Compression.NONE else _RATIO_ASSUMED
            for block, start, end in zip(range(*span), offsets, offsets[1:], strict=False):
                if block not in slot.images:
                    blocks[slot, block] = ratio * (end - start)
        return blocks
