"""A cache of metadata and decoded blocks, bounded by bytes, for any number of databases on one event loop.

Eviction is the clock algorithm: entries queue in order of arrival; what was used since its last turn gets another
one.  Uses are marks in the slot (one byte per block), which also the lookup kernel sets, so a hit costs no bookkeeping
and eviction is O(1) amortised.
"""

from collections import OrderedDict
from dataclasses import dataclass

from shale.sst.meta import SstMeta
from shale.sst.slot import META, SstSlot
from shale.telemetry.metrics import Metrics

DEFAULT_CAPACITY_BYTES = 256 * 1024 * 1024
_ENTRY_OVERHEAD_BYTES = 256
_USED = b"\x01"


@dataclass(slots=True)
class CacheStats:
    """Plain counters; metrics read them before a scrape."""

    meta_hits: int = 0
    meta_misses: int = 0
    block_hits: int = 0
    block_misses: int = 0
    evictions: int = 0


class BlockCache:
    """Holds what was read from SSTs until ``capacity_bytes`` are used; 0 keeps nothing."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        assert capacity_bytes >= 0
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.stats = CacheStats()
        self._queue: OrderedDict[tuple[SstSlot, int], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def put_meta(self, slot: SstSlot, meta: SstMeta) -> None:
        """Load a slot with its metadata, unless it has it."""
        if slot.meta is None:
            slot.load(meta)
            self._enter((slot, META), meta.size_bytes)

    def put_block(self, slot: SstSlot, block: int, image: bytes) -> None:
        """Keep a decoded block.  Without metadata in the slot there is no place for it."""
        if slot.meta is not None and block not in slot.images:
            before = slot.tables_bytes
            slot.put_image(block, image)
            self._grow((slot, META), slot.tables_bytes - before)
            self._enter((slot, block), len(image))

    def forget(self, slot: SstSlot) -> None:
        """Drop everything of an SST that no manifest names any more."""
        if slot.meta is None:
            return
        for block in slot.images:
            self._leave((slot, block))
        self._leave((slot, META))
        slot.unload()

    def export(self, metrics: Metrics) -> None:
        """Show the counters in these metrics from now on."""
        children = {
            field: metrics.counter("slatedb_db_cache_accesses_total", entry_kind=kind, result=result)
            for field, kind, result in (
                ("meta_hits", "index", "hit"),
                ("meta_misses", "index", "miss"),
                ("block_hits", "data_block", "hit"),
                ("block_misses", "data_block", "miss"),
            )
        }
        exported = CacheStats()

        def refresh() -> None:
            for field, counter in children.items():
                counter.inc(getattr(self.stats, field) - getattr(exported, field))
                setattr(exported, field, getattr(self.stats, field))

        metrics.before_scrape(refresh)

    def _enter(self, entry: tuple[SstSlot, int], size_bytes: int) -> None:
        cost = size_bytes + _ENTRY_OVERHEAD_BYTES
        self._queue[entry] = cost
        self.used_bytes += cost
        while self.used_bytes > self.capacity_bytes:
            self._evict_one()

    def _grow(self, entry: tuple[SstSlot, int], more_bytes: int) -> None:
        """Count what came to an entry; ``_enter`` follows and makes room."""
        self._queue[entry] += more_bytes
        self.used_bytes += more_bytes

    def _leave(self, entry: tuple[SstSlot, int]) -> None:
        self.used_bytes -= self._queue.pop(entry, 0)

    def _evict_one(self) -> None:
        """Give the oldest entry another turn if it was used, else drop it.  Metadata goes with all its blocks."""
        entry, cost = self._queue.popitem(last=False)
        slot, block = entry
        if block == META:
            self._queue[entry] = cost
            if slot.meta_touched or _USED in slot.touched:
                slot.meta_touched = False
                return
            self.forget(slot)
        elif slot.touched[block]:
            slot.touched[block] = 0
            self._queue[entry] = cost
            return
        else:
            self.used_bytes -= cost
            slot.drop_image(block)
        self.stats.evictions += 1
