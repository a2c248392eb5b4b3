"""Uploads frozen memtables: one SST for each segment that a table touches.

Source: docs/reference/protocol.md 4.8.3.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.core.lazy_names import import_at_call
from shale.engine.memtable.frozen_table import FrozenTable
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES
from shale.engine.options import DbOptions
from shale.env import Env
from shale.errors import MergeOperatorFailed, UnavailableError
from shale.format.blocks.transform import BlockTransformer
from shale.iter.merge_operator import MergeOperator
from shale.iter.source import ChunksSource, RowSource, RowsSource
from shale.kernels.rows import Rows
from shale.sst.options import SstOptions
from shale.store.port import SstUploads
from shale.telemetry import tracing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import KeyRange, Sst, SstInfo, Ulid

if TYPE_CHECKING:
    from shale.iter.compaction import compaction_source
    from shale.iter.retention import RetentionPolicy, keeps_as_is
    from shale.sst.builder import SstBuilder
else:  # with the first flush
    compaction_source, RetentionPolicy, keeps_as_is, SstBuilder = import_at_call(
        globals(),
        compaction_source="shale.iter.compaction",
        RetentionPolicy="shale.iter.retention",
        keeps_as_is="shale.iter.retention",
        SstBuilder="shale.sst.builder",
    )

log = get_logger("memtable")

_INLINE_ROWS_MAX = 2048
"""Checking this many takes about as long as handing them to a thread."""

_STREAM_FROM_BYTES = 16 << 20
"""Smaller SSTs go up in one request, which the retry layer can repeat."""

_CHUNK_BYTES = 4 << 20

_PARTS_AHEAD = 4
"""Parts that wait while one is uploaded; they bound the memory of an SST that is being built."""


class TableUploader:
    """Uploads frozen tables.  Each upload is repeated until the store takes it; all share one concurrency limit.

    Args:
        uploader: builds and uploads one SST.
        options: the concurrency limit and the delay of retries.
        sst_key: maps the id of an SST to its object key.
        min_seq: returns the lowest sequence number that a read needs; called before each SST.
        on_failing: called when an upload fails for the first time.
    """

    def __init__(
        self,
        uploader: "L0Uploader",
        options: DbOptions,
        *,
        sst_key: Callable[[Ulid], str],
        min_seq: Callable[[], int],
        on_failing: Callable[[], None],
    ) -> None:
        self.failing = 0
        """Uploads that have failed and are being retried."""
        self._uploader = uploader
        self._sst_key = sst_key
        self._min_seq = min_seq
        self._on_failing = on_failing
        self._retry_s = options.manifest_poll_interval_s
        self._limit = anyio.CapacityLimiter(options.l0_flush_parallelism)

    async def upload(self, frozen: FrozenTable, sst_ids: Sequence[Ulid]) -> None:
        """Upload a sorted table and set its ``ssts``.

        Args:
            frozen: the table.
            sst_ids: one for each of its segments, ascending in the order in which tables are published.
        """
        assert frozen.sorted
        pieces = [frozen.table.rows(KeyRange.with_prefix(prefix)) for prefix in frozen.segments]
        assert sum(map(len, pieces)) == len(frozen.table), "every row belongs to a recorded segment"
        with tracing.job("memtable.flush", **{"slatedb.seq": frozen.last_seq}):
            ssts = await gather(
                [
                    partial(self._upload_one, rows, sst_id, frozen.last_tick)
                    for rows, sst_id in zip(pieces, sst_ids, strict=True)
                ]
            )
        frozen.ssts = tuple((prefix, sst) for prefix, sst in zip(frozen.segments, ssts, strict=True) if sst is not None)
        log.debug(
            Event.MEMTABLE_FLUSH_OK,
            sst_id=str(frozen.ssts[0][1].id) if frozen.ssts else None,
            ssts=len(frozen.ssts),
            last_seq=frozen.last_seq,
            bytes=frozen.size_bytes,
        )

    async def _upload_one(self, rows: Rows, sst_id: Ulid, now_tick: int) -> Sst | None:
        key = self._sst_key(sst_id)
        failing = False
        try:
            while True:
                try:
                    async with self._limit:
                        return await self._uploader.upload(
                            rows, sst_id, key, min_seq=self._min_seq(), now_tick=now_tick
                        )
                except UnavailableError as error:
                    log.info(Event.STORE_REQUEST_RETRIED, op="put", error=str(error))
                    if not failing:
                        failing = True
                        self.failing += 1
                        self._on_failing()
                    await anyio.sleep(self._retry_s)
        finally:
            self.failing -= failing


class L0Uploader:
    """Builds and uploads single SSTs.

    Args:
        store: the database's object store.
        options: block size, compression, filters.
        operator: folds merge operands; operands that it cannot fold are stored as they are.
        env: CPU.
        on_merge_failure: called with the number of operands that could not be folded.
    """

    def __init__(
        self,
        store: SstUploads,
        options: SstOptions,
        operator: MergeOperator | None,
        env: Env,
        *,
        on_merge_failure: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._store = store
        self._on_merge_failure = on_merge_failure
        self._options = options
        self._operator = operator
        self._env = env

    async def upload(self, rows: Rows, sst_id: Ulid, key: str, *, min_seq: int, now_tick: int) -> Sst | None:
        """Upload the rows that retention keeps.  May be called again with the same arguments after an error.

        Args:
            rows: of one tree, by key, then seq descending.
            sst_id: the id of the SST.
            key: the object key of the SST.
            min_seq: keep old versions that a read at this sequence number needs.
            now_tick: the database's clock at the newest row, in milliseconds.

        Returns:
            The SST; ``None`` if retention keeps no row.
        """
        failures: list[MergeOperatorFailed] = []

        def keep(count: int, error: MergeOperatorFailed) -> None:
            # The rows were acknowledged, so they are stored, and reads of the key raise the operator's error.  Ending
            # the writer instead would end the next one too, which replays the same rows.
            self._on_merge_failure(count)
            failures.append(error)

        retention = RetentionPolicy(min_seq=min_seq, now_tick=now_tick, drop_tombstones=False)
        source: RowSource
        if await self._are_kept(rows, retention):
            source = ChunksSource(list(_chunks(rows)))
        else:
            source = compaction_source(
                [RowsSource(rows)], retention=retention, operator=self._operator, env=self._env, on_merge_failure=keep
            )
        sst = await self._upload(rows, source, sst_id, key)
        if failures:
            log.warning(Event.MEMTABLE_FLUSH_MERGE_FAILED, sst_id=str(sst_id), error=str(failures[0]))
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

    async def _are_kept(self, rows: Rows, retention: "RetentionPolicy") -> bool:
        """Whether retention keeps every row unchanged."""
        check = partial(keeps_as_is, rows, retention)
        return check() if len(rows) <= _INLINE_ROWS_MAX else await self._env.cpu.run(check)

    async def _put_stream(self, key: str, parts: AsyncIterator[BytesLike]) -> None:
        """Upload parts while the next ones are built."""
        sender, receiver = anyio.create_memory_object_stream[BytesLike](_PARTS_AHEAD)

        async def build() -> None:
            async for part in parts:
                await sender.send(part)
            sender.close()  # only after the last part: the store takes the end of the stream for a complete SST

        async def upload() -> None:
            await self._store.put_stream(key, receiver)

        with sender, receiver:
            await gather([build, upload])


class _Build:
    """The build of one SST.  ``info`` is set when ``parts`` has ended, unless there were no rows."""

    def __init__(self, source: RowSource, options: SstOptions, env: Env) -> None:
        self.info: SstInfo | None = None
        self._source = source
        self._options = options
        self._env = env

    async def parts(self) -> AsyncIterator[BytesLike]:
        """Yield the bytes of the SST in order."""
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
    """Yield chunks that take some milliseconds each to encode."""
    step = max(1, len(rows) * _CHUNK_BYTES // max(rows.size_bytes, 1))
    for start in range(0, len(rows), step):
        yield rows.slice(start, min(start + step, len(rows)))


async def _chain(first: BytesLike, rest: AsyncIterator[BytesLike]) -> AsyncIterator[BytesLike]:
    yield first
    async for part in rest:
        yield part


def sst_options(options: DbOptions, transformer: BlockTransformer | None) -> SstOptions:
    """Return the options of SSTs that a writer with these options builds."""
    defaults = SstOptions(
        block_size_bytes=options.block_size_bytes,
        compression=options.compression,
        min_filter_keys=options.min_filter_keys,
        transformer=transformer,
    )
    if options.filter_policies is None:
        return defaults
    return replace(defaults, filter_policies=options.filter_policies)
