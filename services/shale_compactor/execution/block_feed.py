"""Gives a merge of stored blocks what it asks for: the next blocks of the source that used up its own."""

from collections.abc import Sequence
from typing import Protocol

from shale.format.block import StoredBlocks
from shale.format.block_merge import BlockMerge
from shale.kernels.rules import Rules
from shale.store.gather import gather


class BlocksSource(Protocol):
    """Blocks by ascending keys."""

    async def next(self) -> StoredBlocks | None:
        """The next blocks; ``None`` at the end."""
        ...


class BlockFeed:
    """A merge and its sources, in order of precedence."""

    def __init__(self, sources: Sequence[BlocksSource], rules: Rules) -> None:
        self.merge = BlockMerge(len(sources), rules)
        self._sources = sources

    async def begin(self) -> None:
        """Fetch the first blocks of every source; the requests overlap."""

        async def begin(number: int, source: BlocksSource) -> None:
            while (blocks := await source.next()) is not None:
                if self.merge.begin(number, blocks):
                    return

        await gather([lambda each=each: begin(*each) for each in enumerate(self._sources)])  # type: ignore[misc]

    async def feed(self) -> None:
        """Fetch what the merge lacks."""
        starved = self.merge.starved
        assert starved is not None, "asked for by a merge that starves"
        while not self.merge.feed(await self._sources[starved].next()):
            pass
