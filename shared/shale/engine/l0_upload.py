"""From a frozen memtable to an SST in the store (docs/protocol.md 4.8.3)."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import anyio

from shale.engine.memtable import ROW_OVERHEAD_BYTES
from shale.env import Env
from shale.errors import MergeOperatorFailed
from shale.iter.compaction import compaction_source
from shale.iter.fused import INLINE_ROWS_MAX
from shale.iter.merge_operator import MergeOperator
from shale.iter.retention import Retention, keeps_as_is
from shale.iter.source import ChunksSource, RowSource, RowsSource
from shale.kernels.rows import Rows
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.gather import gather
from shale.store.port import Buffer, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Sst, SstInfo, Ulid

log = get_logger("memtable")

_STREAM_FROM_BYTES = 16 << 20
"""Smaller SSTs go up in one request, which the retry layer can repeat."""

_CHUNK_BYTES = 4 << 20

_PARTS_AHEAD = 4
"""Parts that wait while one is uploaded; an SST in the making holds so many megabytes beside its table."""


class L0Uploader:
    """Builds and uploads SSTs.

    Args:
        store: where.
        options: how SSTs look.
        operator: folds merge operands; without one they pass, as those do that it refuses.
        on_refused: told how many it refused.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: SstOptions,
        operator: MergeOperator | None,
        env: Env,
        *,
        on_refused: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._store = store
        self._on_refused = on_refused
        self._options = options
        self._operator = operator
        self._env = env

    async def upload(self, rows: Rows, sst_id: Ulid, key: str, *, min_seq: int, now_tick: int) -> Sst | None:
        """Write what retention keeps of sorted rows; ``None`` if that is nothing.  May be called again after an error.

        Args:
            rows: of one tree.
            sst_id: of the SST that they become, and
            key: where it is.
            min_seq: older versions that a reader at this sequence number needs are kept.
            now_tick: the database's clock at the newest of the rows.
        """
        refused: list[MergeOperatorFailed] = []

        def keep(count: int, error: MergeOperatorFailed) -> None:
            # These rows were accepted.  Reads of the key fail, as they would anyway; to end the writer for it would
            # end the next one too, which replays the same rows.
            self._on_refused(count)
            refused.append(error)

        retention = Retention(min_seq=min_seq, now_tick=now_tick, drop_tombstones=False)
        source: RowSource
        if await self._are_kept(rows, retention):
            source = ChunksSource(list(_chunks(rows)))
        else:
            source = compaction_source(
                [RowsSource(rows)], retention=retention, operator=self._operator, env=self._env, on_refused=keep
            )
        sst = await self._upload(rows, source, sst_id, key)
        if refused:
            log.warning(Event.MEMTABLE_FLUSH_UNFOLDED, sst_id=str(sst_id), error=str(refused[0]))
        return sst

    async def _upload(self, rows: Rows, source: RowSource, sst_id: Ulid, key: str) -> Sst | None:
        build = _Build(source, self._options, self._env)
        parts = build.parts()
        first = await anext(parts, None)
        if first is None:
            return None
        if rows.size_bytes + ROW_OVERHEAD_BYTES * len(rows) < _STREAM_FROM_BYTES:
            await self._store.put(key, [first, *[part async for part in parts]])
        else:
            await self._put_stream(key, _chain(first, parts))
        assert build.info is not None
        return Sst(id=sst_id, info=build.info)

    async def _are_kept(self, rows: Rows, retention: Retention) -> bool:
        """Whether the rows go to the builder as they are."""
        look = partial(keeps_as_is, rows, retention)
        return look() if len(rows) <= INLINE_ROWS_MAX else await self._env.cpu.run(look)

    async def _put_stream(self, key: str, parts: AsyncIterator[Buffer]) -> None:
        """Upload parts while the next ones are built."""
        offers, taken = anyio.create_memory_object_stream[Buffer](_PARTS_AHEAD)

        async def build() -> None:
            async for part in parts:
                await offers.send(part)
            offers.close()  # only behind the last part: an early end would be taken for a whole SST

        async def upload() -> None:
            await self._store.put_stream(key, taken)

        with offers, taken:
            await gather([build, upload])


class _Build:
    """One SST in the making.  ``info`` is known when ``parts`` has ended, unless there were no rows."""

    def __init__(self, source: RowSource, options: SstOptions, env: Env) -> None:
        self.info: SstInfo | None = None
        self._source = source
        self._options = options
        self._env = env

    async def parts(self) -> AsyncIterator[Buffer]:
        """The SST's bytes, in order."""
        builder = SstBuilder(self._options)
        while (rows := await self._source.next()) is not None:
            for chunk in _chunks(rows):
                await self._env.cpu.run(partial(builder.add, chunk))
                for part in builder.take_parts():
                    yield part
        if builder.is_empty:
            return
        parts, self.info = await self._env.cpu.run(builder.finish)
        for part in parts:
            yield part


def _chunks(rows: Rows) -> Iterator[Rows]:
    """Pieces that keep a thread busy for some milliseconds."""
    step = max(1, len(rows) * _CHUNK_BYTES // max(rows.size_bytes, 1))
    for start in range(0, len(rows), step):
        yield rows.slice(start, min(start + step, len(rows)))


async def _chain(first: Buffer, rest: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
    yield first
    async for part in rest:
        yield part
