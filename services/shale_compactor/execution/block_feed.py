"""Gives a merge of stored blocks what it asks for: the next blocks of the source that used up its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio

from shale.env import Env
from shale.format.block import StoredBlocks
from shale.format.block_merge import BlockMerge
from shale.kernels.merge_steps import Step
from shale.kernels.rules import Rules
from shale.store.gather import gather

_INLINE_BYTES_MAX = 8 << 20
"""The first row of a block is behind its checksum, which takes long for a larger one."""


class BlocksSource(Protocol):
    """Blocks by ascending keys."""

    @property
    def is_at_hand(self) -> bool:
        """Whether ``take`` has an answer."""
        ...

    async def next(self) -> StoredBlocks | None:
        """The next blocks; ``None`` at the end."""
        ...

    def take(self) -> StoredBlocks | None:
        """What ``next`` would return, for any thread."""
        ...

    def read_on(self) -> None:
        """Read ahead after ``take``; for the thread of the event loop."""
        ...


class BlockFeed:
    """A merge and its sources, in order of precedence."""

    def __init__(self, sources: Sequence[BlocksSource], rules: Rules, env: Env) -> None:
        self.merge = BlockMerge(len(sources), rules)
        self._sources = sources
        self._env = env
        self._lock = anyio.Lock()

    async def begin(self) -> None:
        """Fetch the first blocks of every source; the requests overlap."""

        async def begin(number: int, source: BlocksSource) -> None:
            while (blocks := await source.next()) is not None:
                if await self._take(blocks, partial(self.merge.begin, number, blocks)):
                    return

        await gather([lambda each=each: begin(*each) for each in enumerate(self._sources)])  # type: ignore[misc]

    async def advance(self, merge_on: Callable[[], Step]) -> Step:
        """Merge in a thread, on and on with what was read ahead: each change of threads costs as much as a megabyte.

        Args:
            merge_on: lets the merge run until something has to be done about input or output.

        Returns:
            what that is; ``STARVED``: the merge waits for ``feed``.
        """
        step = await self._env.cpu.run(partial(self._merge_on, merge_on))
        for source in self._sources:
            source.read_on()
        return step

    def _merge_on(self, merge_on: Callable[[], Step]) -> Step:
        while (step := merge_on()) is Step.STARVED:
            while (source := self._sources[self._starved]).is_at_hand:
                if self.merge.feed(source.take()):
                    break
            else:
                break
        return step

    async def feed(self) -> None:
        """Fetch what the merge lacks."""
        starved = self._starved
        while True:
            blocks = await self._sources[starved].next()
            if await self._take(blocks, partial(self.merge.feed, blocks)):
                return

    @property
    def _starved(self) -> int:
        starved = self.merge.starved
        assert starved is not None, "asked for by a merge that starves"
        return starved

    async def _take(self, blocks: StoredBlocks | None, take: Callable[[], bool]) -> bool:
        """Give the merge blocks; sources begin side by side, and it takes from one at a time."""
        async with self._lock:
            if blocks is None or len(blocks.image) <= _INLINE_BYTES_MAX or blocks.longest <= _INLINE_BYTES_MAX:
                return take()
            return await self._env.cpu.run(take)
