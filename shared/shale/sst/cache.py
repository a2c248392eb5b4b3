"""A cache of metadata and decoded blocks for all databases of one thread, within the bytes of a ``MemoryBudget``.

Eviction is S3-FIFO.  A block enters the small queue.  It moves to the main queue if it is used before it leaves the
small one, or is read again soon after.  So blocks that are read once, as by scans, take a tenth of the memory.  In the
main queue an entry used since its last visit is reinserted.  A use sets a byte in the slot, which the lookup kernel
does too, so a hit costs no bookkeeping, and eviction is O(1) amortised.  (docs/how-to/caching.md has
the hit
rates beside those of other rules.)

Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

import asyncio
import contextlib
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence

from shale.sst.budget import DEFAULT_CAPACITY_BYTES, MemoryBudget
from shale.sst.meta import SstMeta
from shale.sst.slot import META, SstSlot
from shale.types import Ulid

ENTRY_OVERHEAD_BYTES = 384
"""Python objects of one entry, and half of a ghost entry."""
_SMALL_QUEUE_PART = 10
"""The small queue holds a tenth of the capacity."""
_USED = b"\x01"

_Entry = tuple[SstSlot, int]


class BlockCache:
    """Metadata and blocks of SSTs.  Used from one thread, unless a method says otherwise."""

    def __init__(self, budget: MemoryBudget | int = DEFAULT_CAPACITY_BYTES) -> None:
        """``budget``: shared with other caches, or the bytes of a budget of its own; 0 keeps nothing."""
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.evictions = 0
        self._asked_loop: asyncio.AbstractEventLoop | None = None
        self._held_bytes = 0
        self._small: OrderedDict[_Entry, int] = OrderedDict()
        self._small_bytes = 0
        self._main: OrderedDict[_Entry, int] = OrderedDict()
        self._kept_in_turn = 0
        """Metadata that was kept one after another because it or its blocks were used."""
        self._ghost: OrderedDict[int, None] = OrderedDict()
        self._released: deque[int] = deque()
        self._abandoned: deque[Mapping[Ulid, SstSlot]] = deque()
        self.budget.join(self)

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    @property
    def capacity_bytes(self) -> int:
        """The bytes of the budget, which other caches may share."""
        return self.budget.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """Blocks, metadata (evicted metadata still in use included) and bookkeeping.  Any thread may read this."""
        return self._held_bytes - sum(list(self._released)) if self._released else self._held_bytes

    def put_meta(self, slot: SstSlot, meta: SstMeta) -> None:
        """Load metadata into a slot, unless it has some."""
        if slot.meta is not None:
            return
        if slot.recall() is not meta:
            # It counts as long as it lives: a scan may hold it longer than this cache does.
            self._held_bytes += meta.size_bytes
            gone = weakref.finalize(meta, self._released.append, meta.size_bytes)
            gone.atexit = False
        slot.load(meta)
        self._enter(self._main, (slot, META), 0)
        self.make_room()

    def put_block(self, slot: SstSlot, block: int, image: bytes) -> None:
        """Keep a decoded block, if the slot has its metadata."""
        self.put_blocks(slot, (block,), (image,))

    def put_blocks(self, slot: SstSlot, blocks: Sequence[int], images: Sequence[bytes]) -> None:
        """Keep decoded blocks, if the slot has its metadata; together they are small."""
        if slot.meta is None:
            return
        before = slot.tables_bytes if not slot.images else None
        for block, image in zip(blocks, images, strict=True):
            if block in slot.images:
                continue
            slot.put_image(block, image)
            if self._ghost and (name := _name(slot, block)) in self._ghost:
                del self._ghost[name]
                self._enter(self._main, (slot, block), len(image))
            else:
                self._enter(self._small, (slot, block), len(image))
        if before is not None:  # the first block makes the tables
            tables_bytes = slot.tables_bytes - before
            self._main[slot, META] += tables_bytes
            self._held_bytes += tables_bytes
        self.make_room()

    def forget(self, slot: SstSlot) -> None:
        """Drop everything of an SST."""
        if slot.meta is None:
            return
        for block in slot.images:
            self._leave((slot, block))
        self._leave((slot, META))
        slot.unload()

    def drop_block(self, slot: SstSlot, block: int) -> None:
        """Drop one block, if it is cached."""
        if block in slot.images:
            self._leave((slot, block))
            slot.drop_image(block)

    def abandon(self, slots: Mapping[Ulid, SstSlot]) -> None:
        """Forget the SSTs of a dropped reader at the next eviction.  Any thread may call this."""
        self._abandoned.append(slots)

    def make_room(self) -> None:
        """Evict until the budget holds or this cache is empty."""
        self._apply_released()
        if self.budget.is_exceeded:
            self.budget.request_room(self)
        while self.budget.is_exceeded and self._evict_one():
            pass

    def shrink_to(self, size_bytes: int) -> None:
        """Evict until this cache takes at most this many bytes."""
        self._apply_released()
        while self.used_bytes > size_bytes and self._evict_one():
            pass

    def request_shrink(self, size_bytes: int) -> None:
        """Make this cache shrink in its own thread.  Any thread may call this.

        One request waits at a time, so that a blocked loop does not collect one per block that others read.
        """
        loop = self.loop
        if loop is None or self._asked_loop is loop:
            return
        self._asked_loop = loop

        def shrink() -> None:
            self._asked_loop = None
            self.shrink_to(size_bytes)

        self.call(shrink)

    def call(self, work: Callable[[], None]) -> None:
        """Run a function in the cache's own thread, if its loop still runs.  Any thread may call this."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self.loop.call_soon_threadsafe(work)

    def _apply_released(self) -> None:
        """Apply what other threads have released."""
        while self._released:
            self._held_bytes -= self._released.popleft()
        while self._abandoned:
            for slot in list(self._abandoned.popleft().values()):
                self.forget(slot)

    def _enter(self, queue: "OrderedDict[_Entry, int]", entry: _Entry, size_bytes: int) -> None:
        cost = size_bytes + ENTRY_OVERHEAD_BYTES
        queue[entry] = cost
        self._held_bytes += cost
        self._small_bytes += cost if queue is self._small else 0

    def _leave(self, entry: _Entry) -> None:
        cost = self._small.pop(entry, 0)
        self._small_bytes -= cost
        self._held_bytes -= cost or self._main.pop(entry, 0)

    def _evict_one(self) -> bool:
        """Drop the next entry, or reinsert it if it was used; return false if there is none."""
        if self._small and (self._small_bytes * _SMALL_QUEUE_PART > self.capacity_bytes or not self._main):
            self._evict_from_small()
        elif self._main:
            self._evict_from_main()
        else:
            return False
        self._apply_released()
        return True

    def _evict_from_small(self) -> None:
        entry, cost = self._small.popitem(last=False)
        self._small_bytes -= cost
        slot, block = entry
        if slot.touched[block]:
            slot.touched[block] = 0
            self._main[entry] = cost
            return
        self._drop_block(slot, block, cost)
        self._ghost[_name(slot, block)] = None
        while len(self._ghost) > len(self) // 2:
            self._ghost.popitem(last=False)

    def _evict_from_main(self) -> None:
        """Reinsert the oldest entry if it was used, else drop it; metadata goes with all its blocks."""
        entry, cost = self._main.popitem(last=False)
        slot, block = entry
        if block == META:
            self._main[entry] = cost
            self._evict_meta(slot)
            return
        self._kept_in_turn = 0
        if slot.touched[block]:
            slot.touched[block] = 0
            self._main[entry] = cost
        else:
            self._drop_block(slot, block, cost)

    def _evict_meta(self, slot: SstSlot) -> None:
        """Drop metadata, and all blocks of its SST, unless it or one of them was used."""
        is_used = slot.meta_touched or _USED in slot.touched
        if is_used and self._kept_in_turn <= len(self._main):
            slot.meta_touched = False
            self._kept_in_turn += 1
        elif is_used and self._small:  # the main queue is metadata alone, and their used blocks are in the small one
            self._evict_from_small()
        else:
            self.forget(slot)
            self.evictions += 1
            self._kept_in_turn = 0

    def _drop_block(self, slot: SstSlot, block: int, cost: int) -> None:
        self._held_bytes -= cost
        slot.drop_image(block)
        self.evictions += 1


def _name(slot: SstSlot, block: int) -> int:
    return hash((slot.sst.id, block))


def thread_cache(budget: MemoryBudget) -> BlockCache:
    """Return the cache of the calling thread in a budget; the first call creates it."""
    cache: BlockCache | None = getattr(budget.of_thread, "cache", None)
    if cache is None:
        cache = budget.of_thread.cache = BlockCache(budget)
    cache.loop = _running_loop()
    return cache


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
