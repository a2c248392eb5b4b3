"""Feeds a block merge: fetches the next blocks of each source that has run out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio

from shale.concurrency.gather import gather
from shale.env import Env
from shale.format.blocks.decoder import StoredBlocks
from shale.format.blocks.merge import BlockMerge
from shale.kernels.merge_rules import MergeRules
from shale.kernels.merge_status import MergeStatus

_INLINE_BYTES_MAX = 8 << 20
"""Taking blocks verifies the checksum of the first one; larger blocks are taken in a CPU thread."""


class StoredBlocksSource(Protocol):
    """A source of blocks in key order."""

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` can return blocks without waiting."""
        ...

    async def next(self) -> StoredBlocks | None:
        """Return the next blocks; ``None`` at the end."""
        ...

    def take(self) -> StoredBlocks | None:
        """Return what ``next`` would return; callable in any thread."""
        ...

    def start_next_read(self) -> None:
        """Start the next read-ahead after ``take``; only in the event loop's thread."""
        ...


class BlockFeed:
    """A block merge and its sources, in order of precedence."""

    def __init__(self, sources: Sequence[StoredBlocksSource], rules: MergeRules, env: Env) -> None:
        self.merge = BlockMerge(len(sources), rules)
        self._sources = sources
        self._env = env
        self._lock = anyio.Lock()

    async def begin(self) -> None:
        """Fetch the first blocks of all sources concurrently."""

        async def begin(number: int, source: StoredBlocksSource) -> None:
            while (blocks := await source.next()) is not None:
                if await self._take(blocks, partial(self.merge.begin, number, blocks)):
                    return

        await gather([lambda each=each: begin(*each) for each in enumerate(self._sources)])  # type: ignore[misc]

    async def advance(self, merge_on: Callable[[], MergeStatus]) -> MergeStatus:
        """Run the merge in a CPU thread as long as blocks are read ahead: a thread switch costs as much as a megabyte.

        Args:
            merge_on: runs the merge until it needs input or its output must be written.

        Returns:
            The step that it stopped with; ``NEED_INPUT``: the merge needs ``feed``.
        """
        step = await self._env.cpu.run(partial(self._merge_on, merge_on))
        for source in self._sources:
            source.start_next_read()
        return step

    def _merge_on(self, merge_on: Callable[[], MergeStatus]) -> MergeStatus:
        while (step := merge_on()) is MergeStatus.NEED_INPUT:
            while (source := self._sources[self._source_needing_input]).is_ready:
                if self.merge.feed(source.take()):
                    break
            else:
                break
        return step

    async def feed(self) -> None:
        """Fetch the next blocks for the source that the merge waits for."""
        source_needing_input = self._source_needing_input
        while True:
            self.merge.release_used()
            blocks = await self._sources[source_needing_input].next()
            if await self._take(blocks, partial(self.merge.feed, blocks)):
                return
            del blocks

    @property
    def _source_needing_input(self) -> int:
        source_needing_input = self.merge.source_needing_input
        assert source_needing_input is not None, "asked for by a merge that starves"
        return source_needing_input

    async def _take(self, blocks: StoredBlocks | None, take: Callable[[], bool]) -> bool:
        """Pass blocks to the merge, one source at a time although sources start concurrently."""
        async with self._lock:
            if blocks is None or len(blocks.image) <= _INLINE_BYTES_MAX or blocks.longest <= _INLINE_BYTES_MAX:
                return take()
            return await self._env.cpu.run(take)
