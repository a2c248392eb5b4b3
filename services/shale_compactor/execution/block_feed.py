"""Gives a merge of stored blocks what it asks for: the next blocks of the source that used up its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio

from shale.env import Env
from shale.format.block import StoredBlocks
from shale.format.block_merge import BlockMerge
from shale.kernels.rules import Rules
from shale.store.gather import gather

_INLINE_BYTES_MAX = 8 << 20
"""The first row of a block is behind its checksum, which takes long for a larger one."""


class BlocksSource(Protocol):
    """Blocks by ascending keys."""

    async def next(self) -> StoredBlocks | None:
        """The next blocks; ``None`` at the end."""
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

    async def feed(self) -> None:
        """Fetch what the merge lacks."""
        starved = self.merge.starved
        assert starved is not None, "asked for by a merge that starves"
        while True:
            blocks = await self._sources[starved].next()
            if await self._take(blocks, partial(self.merge.feed, blocks)):
                return

    async def _take(self, blocks: StoredBlocks | None, take: Callable[[], bool]) -> bool:
        """Give the merge blocks; sources begin side by side, and it takes from one at a time."""
        async with self._lock:
            if blocks is None or blocks.longest <= _INLINE_BYTES_MAX:
                return take()
            return await self._env.cpu.run(take)
