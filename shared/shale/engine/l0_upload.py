"""From a frozen memtable to an SST in the store (docs/protocol.md 4.8.3)."""

from collections.abc import AsyncIterator, Iterator
from functools import partial

from shale.engine.memtable import ROW_OVERHEAD_BYTES
from shale.env import Env
from shale.errors import MergeOperatorFailed
from shale.iter.compaction import compaction_source
from shale.iter.merge_operator import MergeOperator
from shale.iter.retention import Retention
from shale.iter.source import RowSource, RowsSource
from shale.kernels.rows import Rows
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.port import Buffer, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Sst, SstInfo, Ulid

log = get_logger("memtable")

_STREAM_FROM_BYTES = 16 << 20
"""Smaller SSTs go up in one request, which the retry layer can repeat."""

_CHUNK_BYTES = 4 << 20


class L0Uploader:
    """Builds and uploads SSTs.

    Args:
        store: where.
        options: how SSTs look.
        operator: folds merge operands; without one they pass, as they do in an SST where it fails.
    """

    def __init__(self, store: ObjectStore, options: SstOptions, operator: MergeOperator | None, env: Env) -> None:
        self._store = store
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
        try:
            return await self._upload(rows, sst_id, key, self._operator, min_seq=min_seq, now_tick=now_tick)
        except MergeOperatorFailed as error:
            # These rows were accepted.  Reads of the key fail, as they would anyway; to end the writer for it would
            # end the next one too, which replays the same rows.
            log.warning(Event.MEMTABLE_FLUSH_UNFOLDED, sst_id=str(sst_id), error=str(error))
            return await self._upload(rows, sst_id, key, None, min_seq=min_seq, now_tick=now_tick)

    async def _upload(
        self, rows: Rows, sst_id: Ulid, key: str, operator: MergeOperator | None, *, min_seq: int, now_tick: int
    ) -> Sst | None:
        retention = Retention(min_seq=min_seq, now_tick=now_tick, drop_tombstones=False)
        source = compaction_source([RowsSource(rows)], retention=retention, operator=operator, env=self._env)
        build = _Build(source, self._options, self._env)
        parts = build.parts()
        first = await anext(parts, None)
        if first is None:
            return None
        if rows.size_bytes + ROW_OVERHEAD_BYTES * len(rows) < _STREAM_FROM_BYTES:
            await self._store.put(key, [first, *[part async for part in parts]])
        else:
            await self._store.put_stream(key, _chain(first, parts))
        assert build.info is not None
        return Sst(id=sst_id, info=build.info)


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
