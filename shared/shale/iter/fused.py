"""Merge and retention in one pass over columns."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shale.env import Env
from shale.iter.plain import fuse_plain
from shale.iter.source import RowSource
from shale.kernels.choice import load_kernels, use_kernels, wants_loading
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.kernels.rules import OnExpired, Rules
from shale.store.gather import gather

if TYPE_CHECKING:
    from shale.iter.fused_kernel import KernelFuse

WORTH_ROWS = 128
"""So many are handed out rather than kept back while more is read: a scan may want no more."""
INLINE_ROWS_MAX = 2048
"""Less is merged on the spot: a thread hop costs as much."""


class Fused:
    """Sources merged by (key, sequence number descending), reduced to what the rules keep.

    The order of the sources is their precedence for equal key and sequence number.  Memory: one chunk a source and
    one of output.  Small inputs are merged in plain Python if the process has not loaded its kernels yet.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        rules: Rules,
        env: Env,
        on_expired: OnExpired | None = None,
        *,
        is_frugal: bool = False,
    ) -> None:
        self._inputs = [_Input(source) for source in sources]
        self._rules = rules
        self._env = env
        self._on_expired = on_expired
        self._is_frugal = is_frugal
        self._begun = False
        self._kernel: KernelFuse | None = None
        self._plain: Rows | None = None
        self._is_starved = False

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        if not self._begun:
            await self._begin()
            self._begun = True
        if self._kernel is not None:
            return await self._next_of(self._kernel)
        rows, self._plain = self._plain, None
        return rows

    async def _begin(self) -> None:
        """Fetch chunks until they are worth the kernels, or all are here."""
        await _fetch_all(self._inputs)
        while not await self._are_worth_kernels():
            unfinished = [source for source in self._inputs if not source.is_finished]
            if not unfinished:
                inputs = [entries_from_rows(concat_rows(source.queue)) for source in self._inputs]
                merged = rows_from_entries(list(fuse_plain(inputs, self._rules, self._on_expired)))
                self._plain = merged if len(merged) else None
                return
            await _fetch_all(unfinished)
        from shale.iter.fused_kernel import KernelFuse

        self._kernel = KernelFuse(len(self._inputs), self._rules, is_frugal=self._is_frugal)
        for number, source in enumerate(self._inputs):
            if source.queue:
                self._kernel.begin(number, source.queue.popleft())

    async def _are_worth_kernels(self) -> bool:
        size_bytes = sum(source.size_bytes for source in self._inputs)
        if wants_loading(size_bytes):
            await self._env.cpu.run(load_kernels)
        return use_kernels(size_bytes)

    async def _next_of(self, kernel: "KernelFuse") -> Rows | None:
        from shale.iter.fused_kernel import Step

        while True:
            if self._is_starved:
                self._is_starved = False
                kernel.feed(await self._inputs[kernel.starved].next())
            run = kernel.run
            step = run() if kernel.room.rows <= INLINE_ROWS_MAX else await self._env.cpu.run(run)
            if self._on_expired is not None:
                self._on_expired(*kernel.take_expired())
            if step is Step.STARVED:
                self._is_starved = True
                if kernel.settled < WORTH_ROWS:
                    continue
            rows = kernel.take()
            if len(rows):
                return rows
            if step is Step.DONE:
                return None


class _Input:
    """A source and the chunks that were fetched ahead."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.queue: deque[Rows] = deque()
        self.is_finished = False

    @property
    def size_bytes(self) -> int:
        return sum(rows.size_bytes for rows in self.queue)

    async def fetch(self) -> None:
        rows = await self._source.next()
        if rows is None:
            self.is_finished = True
        else:
            self.queue.append(rows)

    async def next(self) -> Rows | None:
        if not self.queue and not self.is_finished:
            await self.fetch()
        return self.queue.popleft() if self.queue else None


async def _fetch_all(inputs: Sequence[_Input]) -> None:
    """One more chunk of each; the requests overlap."""
    await gather([source.fetch for source in inputs])
