"""What a reader sees of stored blocks and of columns, merged in one pass, without columns in between."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio

from shale.env import Env
from shale.errors import CorruptionError, SstMissing
from shale.format.block import StoredBlocks
from shale.iter.fused import INLINE_ROWS_MAX, WORTH_ROWS
from shale.iter.visible_kernel import KernelVisible
from shale.kernels.merge_steps import Step
from shale.kernels.rows import Rows
from shale.store.gather import gather
from shale.types import U64_MAX

_INLINE_BYTES_MAX = 8 << 20
"""The first row of a block is behind its checksum, which takes long for a larger one."""


class BlocksSource(Protocol):
    """Blocks by ascending keys."""

    @property
    def is_at_hand(self) -> bool:
        """Whether ``take`` has an answer."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether ``next`` would certainly return ``None``."""
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


class VisibleBlocks:
    """The newest versions of each key, as ``Fused`` with ``newest_only`` and ``drop_tombstones`` gives them.

    Args:
        tables: rows that are in memory, in order of precedence; they come before ``sources``.
        sources: in order of precedence.
        env: where merging runs.
        max_seq: rows above it are invisible; ``None``: all are visible.
        max_seq_of_blocks: the same for the rows of ``sources``.
        now_tick: see ``VisibleSource``.
        is_whole: rows come in few large chunks, for who takes all of them; otherwise the first chunk is small.
        on_corrupt: told where the SST is of which blocks are malformed.
    """

    def __init__(
        self,
        tables: Sequence[Rows],
        sources: Sequence[BlocksSource],
        env: Env,
        *,
        max_seq: int | None = None,
        max_seq_of_blocks: int = U64_MAX,
        now_tick: int | None = None,
        is_whole: bool = False,
        on_corrupt: Callable[[str], None] = lambda _path: None,
    ) -> None:
        self._tables = tables
        self._sources = sources
        self._env = env
        self._max_seq_of_blocks = max_seq_of_blocks
        self._is_whole = is_whole
        self._on_corrupt = on_corrupt
        self._kernel = KernelVisible(len(tables) + len(sources), max_seq, now_tick, is_whole=is_whole)
        self._has_begun = self._is_done = False
        self._lock = anyio.Lock()

    async def next(self) -> Rows | None:
        """See ``RowSource``.

        Raises:
            CorruptionError: blocks are gone or malformed.
        """
        try:
            return await self._next()
        except SstMissing:
            raise
        except CorruptionError as error:
            self._on_corrupt(error.path or "")
            raise

    async def _next(self) -> Rows | None:
        kernel = self._kernel
        if not self._has_begun:
            await self._begin()
        while not self._is_done:
            if kernel.starved is not None:
                await self._feed()
            is_small = kernel.room.rows <= INLINE_ROWS_MAX
            step = self._merge() if is_small else await self._env.cpu.run(self._merge)
            for source in self._sources:
                source.read_on()
            if step is Step.STARVED and (self._is_whole or kernel.rows < WORTH_ROWS):
                continue
            self._is_done = step is Step.DONE
            rows = kernel.take()
            if len(rows):
                return rows
        return None

    async def _begin(self) -> None:
        """Fetch the first blocks of every source; the requests overlap."""
        self._has_begun = True
        for number, rows in enumerate(self._tables):
            if len(rows):
                self._kernel.begin(number, rows)

        async def begin(number: int, source: BlocksSource) -> None:
            while (blocks := await source.next()) is not None:
                give = partial(self._kernel.begin, len(self._tables) + number, blocks, self._max_seq_of_blocks)
                if await self._given(blocks, give):
                    return

        await gather([partial(begin, number, source) for number, source in enumerate(self._sources)])

    def _merge(self) -> Step:
        """Merge on and on with what is at hand: each change of threads costs as much as some thousand rows."""
        kernel = self._kernel
        while (step := kernel.run()) is Step.STARVED:
            while (source := self._starved_source()) is not None and not source.is_over:
                if not source.is_at_hand:
                    return step
                if kernel.feed(source.take(), self._max_seq_of_blocks):
                    break
            else:
                kernel.feed(None)
        return step

    async def _feed(self) -> None:
        """Fetch what the merge lacks."""
        source = self._starved_source()
        assert source is not None, "rows in memory are given whole"
        while True:
            blocks = await source.next()
            if await self._given(blocks, partial(self._kernel.feed, blocks, self._max_seq_of_blocks)):
                return

    def _starved_source(self) -> BlocksSource | None:
        """What can give more to the merge; ``None``: rows in memory, which have no more."""
        number = self._kernel.starved
        assert number is not None, "asked for by a merge that starves"
        return self._sources[number - len(self._tables)] if number >= len(self._tables) else None

    async def _given(self, blocks: StoredBlocks | None, give: Callable[[], bool]) -> bool:
        """Give the merge blocks; sources begin side by side, and it takes from one at a time."""
        async with self._lock:
            if blocks is None or len(blocks.image) <= _INLINE_BYTES_MAX or blocks.longest <= _INLINE_BYTES_MAX:
                return give()
            return await self._env.cpu.run(give)
