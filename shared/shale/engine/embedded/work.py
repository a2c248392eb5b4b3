"""Tells when the L0s of a writer need a compaction."""

from collections.abc import Callable

import anyio

from shale.concurrency.signal import Signal
from shale.types import Manifest, Ulid

_AGAIN_S, _AGAIN_FULL_S = 30.0, 5.0


def fullest_l0(manifest: Manifest) -> int:
    """Return the number of L0s of the tree that has most."""
    return max((len(tree.l0) for _, tree in manifest.trees()), default=0)


class L0Work:
    """Waits for L0s to compact, and for compactions.

    Args:
        read: returns the newest manifest that the writer knows.
        changed: is notified after every change.
        min_sources: from how many L0s of one tree on there is work.
        l0_max_ssts: with so many L0s the writer can flush no more.
    """

    def __init__(self, read: Callable[[], Manifest], changed: Signal, min_sources: int, l0_max_ssts: int) -> None:
        self._seen: Manifest | None = None
        self._read = read
        self._changed = changed
        self.min_sources = min_sources
        self._l0_max_ssts = l0_max_ssts
        self._is_awaited = anyio.Event()

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that the writer knows."""
        return self._read()

    @property
    def trees(self) -> object:
        """All SSTs, to compare with those of another time."""
        manifest = self._read()
        return manifest.tree, manifest.segments

    async def wait(self) -> None:
        """Wait until there is work.

        A caller that could do nothing about a state, as another compactor is there, is asked again after 30 s: that one
        may be gone, and a writer that stalls changes nothing.  While L0 is full it is asked more often.
        """
        self._is_awaited.set()
        is_full = fullest_l0(self._read()) >= self._l0_max_ssts
        with anyio.move_on_after(_AGAIN_FULL_S if is_full else _AGAIN_S):
            while self._read() is self._seen:
                await self._changed.wait()
        while fullest_l0(manifest := self._read()) < self.min_sources:
            await self._changed.wait()
        self._seen = manifest
        self._is_awaited = anyio.Event()

    async def finished(self) -> None:
        """Return once the caller of ``wait`` has done the work, or has not begun any."""
        await self._is_awaited.wait()

    async def wait_compacted(self) -> frozenset[Ulid]:
        """Wait until SSTs are gone that were there when this was called, or came since; return them."""
        before = _ssts(self._read())
        while before <= (now := _ssts(self._read())):
            before = now
            await self._changed.wait()
        return before - now


def _ssts(manifest: Manifest) -> frozenset[Ulid]:
    return frozenset(view.sst.id for view in manifest.views())
