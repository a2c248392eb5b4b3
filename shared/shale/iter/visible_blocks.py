"""Visible rows of stored blocks and of columns, merged in one pass without decoding blocks to columns first."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CorruptionError, SstMissing
from shale.format.blocks.decoder import StoredBlocks
from shale.iter.merge_filter import EAGER_ROWS_MIN, INLINE_ROWS_MAX
from shale.iter.visible_kernel import VisibleKernel
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import Rows
from shale.types import U64_MAX

_INLINE_BYTES_MAX = 8 << 20
"""Above this size the checksum of a block, which precedes its first row, takes too long for the event loop."""
_INLINE_READS_MAX = 2
"""Reads of local files of half a megabyte in one turn of the event loop, which takes a millisecond or two."""
_THREAD_READS_MAX = 64
"""The same for a thread, which cannot be cancelled before."""


class BlocksSource(Protocol):
    """A source of stored blocks by ascending keys."""

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` can return at once."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether ``next`` certainly returns ``None``."""
        ...

    async def next(self) -> StoredBlocks | None:
        """Return the next blocks; ``None`` at the end."""
        ...

    def read_now(self) -> bool:
        """Read in the calling thread, if that does not wait, what ``take`` then returns."""
        ...

    def take(self) -> StoredBlocks | None:
        """Return what ``next`` would; any thread may call this."""
        ...

    def start_next_read(self) -> None:
        """Read ahead after ``take``, on the event loop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """Which rows a merge returns.

    Args:
        max_seq: rows above it are invisible; ``None``: all are visible.
        max_seq_of_blocks: the same for rows of stored blocks.
        now_tick: rows that have expired by then are invisible; ``None``: they are visible.
    """

    max_seq: int | None = None
    max_seq_of_blocks: int = U64_MAX
    now_tick: int | None = None


class VisibleBlocksSource:
    """The newest version of each key, as ``MergeFilterSource`` with ``newest_only`` and ``drop_tombstones`` gives them.

    Args:
        tables: rows in memory, in order of precedence; they precede ``sources``.
        sources: in order of precedence.
        env: where merging runs.
        visibility: which rows are visible.
        reads_all: return few large chunks, for a caller that takes all; otherwise the first chunk is small.
        on_corrupt: receives the path of an SST with malformed blocks.
    """

    def __init__(
        self,
        tables: Sequence[Rows],
        sources: Sequence[BlocksSource],
        env: Env,
        *,
        visibility: Visibility | None = None,
        reads_all: bool = False,
        on_corrupt: Callable[[str], None] = lambda _path: None,
    ) -> None:
        self._tables = tables
        self._sources = sources
        self._env = env
        visible = visibility if visibility is not None else Visibility()
        self._max_seq_of_blocks = visible.max_seq_of_blocks
        self._reads_all = reads_all
        self._on_corrupt = on_corrupt
        self._kernel = VisibleKernel(len(tables) + len(sources), visible.max_seq, visible.now_tick, reads_all=reads_all)
        self._has_begun = self._is_done = False
        self._lock = anyio.Lock()

    async def next(self) -> Rows | None:
        """See ``RowSource``.

        Raises:
            CorruptionError: blocks are missing or malformed.
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
            if kernel.source_needing_input is not None:
                await self._feed()
            is_small = kernel.capacity.rows <= INLINE_ROWS_MAX
            merge = partial(self._merge, _INLINE_READS_MAX if is_small else _THREAD_READS_MAX)
            step = merge() if is_small else await self._env.cpu.run(merge)
            for source in self._sources:
                source.start_next_read()
            if step is MergeStatus.NEED_INPUT and (self._reads_all or kernel.rows < EAGER_ROWS_MIN):
                if is_small:  # many hidden rows: others must run, although nothing waits for the disk
                    await checkpoint()
                continue
            self._is_done = step is MergeStatus.DONE
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

    def _merge(self, reads_max: int) -> MergeStatus:
        """Merge as long as input is in memory: each change of threads costs as much as some thousand rows.

        ``reads_max``: reads of local files at most; hidden rows give no output that would end the merge.
        """
        reads = 0
        kernel = self._kernel
        while (step := kernel.run()) is MergeStatus.NEED_INPUT:
            while (source := self._exhausted_input()) is not None and not source.is_over:
                if not source.is_ready:
                    if reads == reads_max or not source.read_now():
                        return step
                    reads += 1
                if kernel.feed(source.take(), self._max_seq_of_blocks):
                    break
            else:
                kernel.feed(None)
        return step

    async def _feed(self) -> None:
        """Fetch the input that the merge needs."""
        source = self._exhausted_input()
        assert source is not None, "rows in memory are one chunk"
        while True:
            blocks = await source.next()
            if await self._given(blocks, partial(self._kernel.feed, blocks, self._max_seq_of_blocks)):
                return

    def _exhausted_input(self) -> BlocksSource | None:
        """Return the source that needs input; ``None``: rows in memory, which have no more."""
        number = self._kernel.source_needing_input
        assert number is not None, "the merge needs input"
        return self._sources[number - len(self._tables)] if number >= len(self._tables) else None

    async def _given(self, blocks: StoredBlocks | None, give: Callable[[], bool]) -> bool:
        """Pass blocks to the merge, one source at a time, although sources fetch concurrently."""
        async with self._lock:
            if blocks is None or len(blocks.image) <= _INLINE_BYTES_MAX or blocks.longest <= _INLINE_BYTES_MAX:
                return give()
            return await self._env.cpu.run(give)
