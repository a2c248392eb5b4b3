"""A cache of metadata and decoded blocks for all databases of one thread, within the bytes of a ``MemoryBudget``.

Eviction is S3-FIFO: a block begins in a short queue, and comes to the main one if it is used again before it leaves
that, or is read again soon after.  So what is read once, as scans do, passes through a tenth of the memory.  In the
main queue who was used since its last turn gets another one.  Uses are marks in the slot (one byte per block), which
also the lookup kernel sets, so a hit costs no bookkeeping and eviction is O(1) amortised.  (docs/caching.md has the hit
rates beside those of other rules.)

Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

import contextlib
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shale.sst.budget import DEFAULT_CAPACITY_BYTES, MemoryBudget
from shale.sst.meta import SstMeta
from shale.sst.slot import META, SstSlot
from shale.types import Ulid

if TYPE_CHECKING:
    import asyncio

ENTRY_OVERHEAD_BYTES = 384
"""What Python needs to keep one entry, and half of a block that is only remembered."""
_NEW_PART = 10
"""New blocks may take a tenth of the capacity before one of them has to leave."""
_USED = b"\x01"

_Entry = tuple[SstSlot, int]


class BlockCache:
    """Holds what was read from SSTs.  Used from one thread, unless a method says otherwise."""

    def __init__(self, budget: MemoryBudget | int = DEFAULT_CAPACITY_BYTES) -> None:
        """``budget``: shared with other caches, or the bytes of one of its own; 0 keeps nothing."""
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.evictions = 0
        self._asked_loop: asyncio.AbstractEventLoop | None = None
        self._held_bytes = 0
        self._new: OrderedDict[_Entry, int] = OrderedDict()
        self._new_bytes = 0
        self._main: OrderedDict[_Entry, int] = OrderedDict()
        self._left: OrderedDict[int, None] = OrderedDict()
        self._released: deque[int] = deque()
        self._abandoned: deque[Mapping[Ulid, SstSlot]] = deque()
        self.budget.join(self)

    def __len__(self) -> int:
        return len(self._new) + len(self._main)

    @property
    def capacity_bytes(self) -> int:
        """The bytes of the budget, of which other caches may hold some."""
        return self.budget.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """Blocks, metadata (also what was evicted and is still in use) and bookkeeping.  Any thread may ask."""
        return self._held_bytes - sum(list(self._released))

    def put_meta(self, slot: SstSlot, meta: SstMeta) -> None:
        """Load a slot with its metadata, unless it has it."""
        if slot.meta is not None:
            return
        if slot.recall() is not meta:
            # It counts as long as it lives: a scan may need it longer than this cache can keep it.
            self._held_bytes += meta.size_bytes
            gone = weakref.finalize(meta, self._released.append, meta.size_bytes)
            gone.atexit = False
        slot.load(meta)
        self._enter(self._main, (slot, META), 0)
        self.make_room()

    def put_block(self, slot: SstSlot, block: int, image: bytes) -> None:
        """Keep a decoded block.  Without metadata in the slot there is no place for it."""
        if slot.meta is None or block in slot.images:
            return
        before = slot.tables_bytes
        slot.put_image(block, image)
        tables_bytes = slot.tables_bytes - before
        self._main[slot, META] += tables_bytes
        self._held_bytes += tables_bytes
        name = _name(slot, block)
        if name in self._left:
            del self._left[name]
            self._enter(self._main, (slot, block), len(image))
        else:
            self._enter(self._new, (slot, block), len(image))
        self.make_room()

    def forget(self, slot: SstSlot) -> None:
        """Drop everything of an SST, as for one that no manifest names any more."""
        if slot.meta is None:
            return
        for block in slot.images:
            self._leave((slot, block))
        self._leave((slot, META))
        slot.unload()

    def drop_block(self, slot: SstSlot, block: int) -> None:
        """Drop one block, if it is here."""
        if block in slot.images:
            self._leave((slot, block))
            slot.drop_image(block)

    def abandon(self, slots: Mapping[Ulid, SstSlot]) -> None:
        """Forget, soon, the SSTs of a reader that was dropped without being closed.  Any thread may call this."""
        self._abandoned.append(slots)

    def make_room(self) -> None:
        """Evict until the budget holds, or nothing is left here."""
        self._settle()
        if self.budget.is_exceeded:
            self.budget.ask_for(self)
        while self.budget.is_exceeded and self._evict_one():
            pass

    def shrink_to(self, size_bytes: int) -> None:
        """Evict until this cache takes no more than that, while the budget is short."""
        self._settle()
        while self.used_bytes > size_bytes and self._evict_one():
            pass

    def ask(self, size_bytes: int) -> None:
        """Let this cache shrink in its own thread; nothing happens until it has done so.  Any thread may call this.

        A loop that stands still, or is busy, must not collect one request for every block that others read.
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
        """Do this in the cache's own thread, if its loop still runs.  Any thread may call this."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed, perhaps since a moment ago
                self.loop.call_soon_threadsafe(work)

    def _settle(self) -> None:
        """Take note of what other threads have let go."""
        while self._released:
            self._held_bytes -= self._released.popleft()
        while self._abandoned:
            for slot in list(self._abandoned.popleft().values()):
                self.forget(slot)

    def _enter(self, queue: "OrderedDict[_Entry, int]", entry: _Entry, size_bytes: int) -> None:
        cost = size_bytes + ENTRY_OVERHEAD_BYTES
        queue[entry] = cost
        self._held_bytes += cost
        self._new_bytes += cost if queue is self._new else 0

    def _leave(self, entry: _Entry) -> None:
        cost = self._new.pop(entry, 0)
        self._new_bytes -= cost
        self._held_bytes -= cost or self._main.pop(entry, 0)

    def _evict_one(self) -> bool:
        """Drop an entry, or move one on that was used; false if there is none."""
        if self._new and (self._new_bytes * _NEW_PART > self.capacity_bytes or not self._main):
            self._pass_new()
        elif self._main:
            self._pass_main()
        else:
            return False
        self._settle()
        return True

    def _pass_new(self) -> None:
        entry, cost = self._new.popitem(last=False)
        self._new_bytes -= cost
        slot, block = entry
        if slot.touched[block]:
            slot.touched[block] = 0
            self._main[entry] = cost
            return
        self._drop_block(slot, block, cost)
        self._left[_name(slot, block)] = None
        while len(self._left) > len(self) // 2:
            self._left.popitem(last=False)

    def _pass_main(self) -> None:
        """Give the oldest entry another turn if it was used, else drop it.  Metadata goes with all its blocks."""
        entry, cost = self._main.popitem(last=False)
        slot, block = entry
        if block == META:
            self._main[entry] = cost
            if slot.meta_touched or _USED in slot.touched:
                slot.meta_touched = False
                return
            self.forget(slot)
            self.evictions += 1
        elif slot.touched[block]:
            slot.touched[block] = 0
            self._main[entry] = cost
        else:
            self._drop_block(slot, block, cost)

    def _drop_block(self, slot: SstSlot, block: int, cost: int) -> None:
        self._held_bytes -= cost
        slot.drop_image(block)
        self.evictions += 1


def _name(slot: SstSlot, block: int) -> int:
    return hash((slot.sst.id, block))
