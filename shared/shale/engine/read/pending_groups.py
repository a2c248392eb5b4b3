"""Groups of lookups that read from the store together: as many as their blocks leave room for."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

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
_SMALL_BYTES = 64 << 10
_UNGROUPED_BYTES_MAX = 64 << 20
"""Small blocks that cannot be larger together are one group: to search for the blocks of each lookup takes time."""
_RATIO_WITHOUT_STATS = 64
"""How much larger than stored an unpacked block is taken to be if there are no stats."""
_TIMES_AVERAGE = 2
"""Compressed blocks are taken to be as large as the average of their SST twice."""


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
        # What is in memory is counted by the lookups; it may be evicted while the rest is read.
        self._metas = {slot: slot.meta for slot in slots if slot.meta is not None}
        missing = [slot for slot in slots if slot not in self._metas]
        loaded = await gather([partial(self._reader.metadata.load, slot) for slot in missing])
        self._metas.update(zip(missing, loaded, strict=True))
        return [len(self._pending)] if self._are_small() else self._split()

    def _are_small(self) -> bool:
        """Return whether all blocks are small and fit together, by the largest of each SST."""
        lookups = Counter(sst.slot for each in self._pending for sst in each.ssts)
        largest = {
            slot: _unpacked_bytes(slot, meta, int(np.diff(meta.index.offsets).max(initial=0)))
            for slot, meta in self._metas.items()
        }
        size_bytes = sum(count * largest[slot] for slot, count in lookups.items())
        return max(largest.values(), default=0) <= _SMALL_BYTES and size_bytes <= _UNGROUPED_BYTES_MAX

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
            for block, start, end in zip(range(*span), offsets, offsets[1:], strict=False):
                if block not in slot.images:
                    blocks[slot, block] = _unpacked_bytes(slot, meta, end - start)
        return blocks


def _unpacked_bytes(slot: SstSlot, meta: "SstMeta", stored_bytes: int) -> int:
    """Estimate the size of a block in memory.

    A fixed ratio would make many groups of usual blocks, each with a round trip of its own.
    """
    if slot.sst.info.compression is Compression.NONE:
        return stored_bytes
    stats = meta.stats
    if stats is None:
        return _RATIO_WITHOUT_STATS * stored_bytes
    average_bytes = (stats.raw_key_size + stats.raw_val_size) // max(1, len(meta.index))
    return max(stored_bytes, _TIMES_AVERAGE * average_bytes)
