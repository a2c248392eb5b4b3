"""Merge and retention in one pass over columns."""

from collections import deque
from collections.abc import Sequence

from shale.concurrency.gather import gather
from shale.env import Env
from shale.iter.merge_filter_kernel import MergeFilterKernel, Step
from shale.iter.merge_filter_plain import merge_filter_plain
from shale.iter.source import RowSource
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_rules import MergeRules, OnExpired
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries

EAGER_ROWS_MIN = 128
"""Return output of this size before reading more input: a scan may need no more."""
INLINE_ROWS_MAX = 2048
"""Merge up to this many rows on the event loop: a change of threads costs as much."""


class MergeFilterSource:
    """Sources merged by (key, sequence number descending), reduced to what the rules keep.

    The order of the sources is their precedence for equal key and sequence number.  It holds one chunk per source and
    one of output.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        rules: MergeRules,
        env: Env,
        on_expired: OnExpired | None = None,
        *,
        low_memory: bool = False,
    ) -> None:
        self._inputs = [_MergeInput(source) for source in sources]
        self._rules = rules
        self._env = env
        self._on_expired = on_expired
        self._low_memory = low_memory
        self._begun = False
        self._kernel: MergeFilterKernel | None = None
        self._plain: Rows | None = None
        self._needs_input = False

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
        """Fetch the first chunks; without kernels all of them, which are merged at once."""
        await _fetch_all(self._inputs)
        if use_kernels():
            self._kernel = MergeFilterKernel(len(self._inputs), self._rules, low_memory=self._low_memory)
            for number, source in enumerate(self._inputs):
                if source.queue:
                    self._kernel.begin(number, source.queue.popleft())
            return
        while unfinished := [source for source in self._inputs if not source.is_finished]:
            await _fetch_all(unfinished)
        inputs = [entries_from_rows(concat_rows(source.queue)) for source in self._inputs]
        merged = rows_from_entries(list(merge_filter_plain(inputs, self._rules, self._on_expired)))
        self._plain = merged if len(merged) else None

    async def _next_of(self, kernel: MergeFilterKernel) -> Rows | None:
        while True:
            if self._needs_input:
                self._needs_input = False
                kernel.feed(await self._inputs[kernel.source_needing_input].next())
            run = kernel.run
            step = run() if kernel.capacity.rows <= INLINE_ROWS_MAX else await self._env.cpu.run(run)
            if self._on_expired is not None:
                self._on_expired(*kernel.take_expired())
            if step is Step.NEED_INPUT:
                self._needs_input = True
                if kernel.final_rows < EAGER_ROWS_MIN:
                    continue
            rows = kernel.take()
            if len(rows):
                return rows
            if step is Step.DONE:
                return None


class _MergeInput:
    """A source and its chunks fetched ahead."""

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


async def _fetch_all(inputs: Sequence[_MergeInput]) -> None:
    """Fetch one more chunk of each source; the requests overlap."""
    await gather([source.fetch for source in inputs])
