"""Carrying out one job: merge its inputs range by range into new SSTs (docs/protocol.md 6.11).

Nothing here touches the manifest or the compactions.  An interrupted job leaves SSTs that nobody names, and
``JobProgress`` says behind which of them the next attempt goes on.
"""

from collections.abc import Sequence
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from shale.compaction.filters import FilterContext
from shale.env import Env
from shale.errors import MergeOperatorFailed, UnavailableError
from shale.iter.compaction import compaction_source
from shale.iter.filter import FilterSource
from shale.iter.merge_operator import MergeOperator, OperandRefusal, checked_operator
from shale.iter.resume import SkipThrough
from shale.iter.retention import Retention, without_old_tombstones
from shale.iter.source import RowSource
from shale.kernels.choice import load_kernels, use_kernels, wants_loading
from shale.kernels.rows import entries_from_rows
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Entry, KeyRange, Sst, excluded, included
from shale_compactor.execution.buffers import Buffers, hash_bytes_of, plan_buffers
from shale_compactor.execution.inputs import JobInputs
from shale_compactor.execution.instruments import ExecutorMetrics
from shale_compactor.execution.job import Job, JobExecutor, check_ascending
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.output import RunWriter
from shale_compactor.execution.planning import ranges_of
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms
from shale_compactor.first_error import first_error

_COPIES_OF_BLOCKS = 2  # the chunk at hand and the one read ahead
_COPIES_OF_ROWS = 8  # each of them stored and decoded, and as much for what stages make of them
_SAMPLED_MAX = 4


class Executor(JobExecutor):
    """Merges in this process."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: Transforms = NO_TRANSFORMS,
        metrics: Metrics | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._env = env
        self._options = options
        self._transforms = transforms
        self._metrics = ExecutorMetrics(metrics if metrics is not None else Metrics())
        self._operator: MergeOperator | None = None
        if transforms.operator is not None:
            self._operator = checked_operator(transforms.operator, transforms.operator_name)
        self._slots = anyio.Semaphore(options.max_active_ranges)

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """Merge everything that ``progress`` does not have yet; returns all outputs in key order.

        Raises:
            CorruptionError: an input is malformed, or the outputs do not ascend.
            MergeOperatorMissing: there are merge operands and no operator, and they may not pass.
            CompactionFilterFailed: code of the user's did.
            UnavailableError: the store gave up.
        """
        reader = self._reader(job, progress)
        if not progress.is_planned:
            progress.plan(await ranges_of(job, reader, max_subcompactions=self._options.max_subcompactions))
        ended: set[int] = set()
        try:
            async with anyio.create_task_group() as tasks:
                for index in range(len(progress.ranges)):
                    tasks.start_soon(self._run_range, job, progress, reader, index, ended, name=f"range.{index}")
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        if len(ended) < len(progress.ranges):
            # A cancellation that nobody asked for, from a client's library for instance, ends a task group in silence.
            raise UnavailableError("a key range was cancelled before its last row")
        outputs = progress.outputs()
        check_ascending(outputs)
        return outputs

    def _reader(self, job: Job, progress: JobProgress) -> SstReader:
        paths = SstPaths.of(self._root, job.manifest)
        cache = BlockCache(self._options.metadata_cache_bytes)
        return SstReader(
            self._store,
            paths,
            cache,
            self._env,
            with_filters=False,
            on_read=progress.note_read,
            transformer=self._options.sst.transformer,
        )

    async def _run_range(self, job: Job, progress: JobProgress, reader: SstReader, index: int, ended: set[int]) -> None:
        writer: RunWriter | None = None
        try:
            async with self._slots, anyio.create_task_group() as tasks:
                inputs = JobInputs(job, reader, ReadAhead(tasks))
                hash_bytes = await self._hash_bytes(job, reader)
                part_bytes = self._buffers(inputs, hash_bytes, _COPIES_OF_BLOCKS).part_bytes
                writer = self._writer(job, progress, index, tasks, part_bytes)
                await self._fill(writer, job, progress, inputs, index, hash_bytes=hash_bytes)
                await writer.close()
                ended.add(index)
        finally:
            if writer is not None:
                progress.repeated_bytes += writer.unfinished_bytes
                writer.abandon()

    def _writer(self, job: Job, progress: JobProgress, index: int, tasks: TaskGroup, part_bytes: int) -> RunWriter:
        return RunWriter(
            self._store,
            self._root,
            self._env,
            tasks,
            options=replace(self._options.sst, merged_part_bytes=part_bytes),
            max_sst_size_bytes=self._options.max_sst_size_bytes,
            not_before_ms=job.id.ms,
            on_sst=lambda sst: progress.add(index, sst),
        )

    async def _fill(
        self, writer: RunWriter, job: Job, progress: JobProgress, inputs: JobInputs, index: int, *, hash_bytes: int
    ) -> None:
        """Write what the range still has to write."""
        keys, written = progress.ranges[index], progress.last_output(index)
        last = None if written is None else await _last_row(inputs.reader, written)
        if await self._merges_blocks(job) and (last is None or _ends_its_key(last, progress)):
            rest = keys if last is None else keys.intersect(KeyRange(start=excluded(last.key)))
            read_bytes = self._buffers(inputs, hash_bytes, _COPIES_OF_BLOCKS).read_bytes
            await self._merge_blocks(writer, job, progress, inputs.blocks(rest, read_bytes))
            return
        read_bytes = self._buffers(inputs, hash_bytes, _COPIES_OF_ROWS).read_bytes
        source = self._source(job, progress, inputs, keys, last, read_bytes=read_bytes)
        while (rows := await source.next()) is not None:
            progress.note_rows(rows.size_bytes)
            await writer.add(rows)

    async def _merges_blocks(self, job: Job) -> bool:
        """Whether nobody has to look at single rows, and there are enough of them for kernels."""
        transforms = self._transforms
        if self._operator is not None or transforms.filters or not transforms.merge_passthrough:
            return False
        if self._options.sst.filters_need_rows:
            return False
        if wants_loading(job.input_bytes):
            await self._env.cpu.run(load_kernels)
        return use_kernels(job.input_bytes)

    async def _merge_blocks(
        self, writer: RunWriter, job: Job, progress: JobProgress, sources: Sequence[BlockSource]
    ) -> None:
        from shale_compactor.execution.block_feed import BlockFeed

        feed = BlockFeed(sources, _retention(job, progress).rules(), self._env)
        await writer.merge(feed, progress.note_rows)
        self._metrics.expired(*feed.merge.take_expired())

    def _source(
        self,
        job: Job,
        progress: JobProgress,
        inputs: JobInputs,
        keys: KeyRange,
        last: Entry | None,
        *,
        read_bytes: int,
    ) -> RowSource:
        """The rows behind ``last``, the last row of an earlier attempt."""
        if last is None:
            return self._filtered(job, progress, keys, self._merged(job, progress, inputs.rows(keys, read_bytes)))
        rest = keys.intersect(KeyRange(start=included(last.key)))
        merged = self._merged(job, progress, inputs.rows(rest, read_bytes))
        source = SkipThrough(merged, last, progress.retention_min_seq)
        return self._filtered(job, progress, keys, source, after=last)

    def _filtered(
        self, job: Job, progress: JobProgress, keys: KeyRange, source: RowSource, *, after: Entry | None = None
    ) -> RowSource:
        filters = self._transforms.filters
        if not filters:
            return source
        context = FilterContext(
            job_id=job.id,
            segment=job.spec.segment,
            destination=job.spec.destination,
            is_dest_last_run=job.is_dest_last_run,
            clock_tick=job.clock_tick,
            retention_min_seq=progress.retention_min_seq,
            key_range=keys,
        )
        for filter_ in filters:
            source = FilterSource(source, filter_, context, self._env, after=after)
        return without_old_tombstones(source, self._env) if job.is_dest_last_run else source

    def _merged(self, job: Job, progress: JobProgress, sources: Sequence[RowSource]) -> RowSource:

        def refused(count: int, error: MergeOperatorFailed) -> None:
            self._metrics.refused(count)
            progress.note_refused(count, str(error))

        merged = compaction_source(
            sources,
            retention=_retention(job, progress),
            operator=self._operator,
            env=self._env,
            on_expired=self._metrics.expired,
            on_folded=self._metrics.folded,
            on_refused=refused,
        )
        return merged if self._operator is not None or self._transforms.merge_passthrough else OperandRefusal(merged)

    def _buffers(self, inputs: JobInputs, hash_bytes: int, copies: int) -> Buffers:
        return plan_buffers(self._options, sources=inputs.source_count, copies=copies, hash_bytes=hash_bytes)

    async def _hash_bytes(self, job: Job, reader: SstReader) -> int:
        stride = max(1, -(-len(job.views) // _SAMPLED_MAX))
        views = job.views[::stride]
        sampled = [(view.sst.info.data_len, (await reader.meta(view.sst)).stats) for view in views]
        return hash_bytes_of(self._options, sampled, job.input_bytes)


def _retention(job: Job, progress: JobProgress) -> Retention:
    return Retention(min_seq=progress.retention_min_seq, now_tick=job.clock_tick, drop_tombstones=job.is_dest_last_run)


def _ends_its_key(last: Entry, progress: JobProgress) -> bool:
    """Whether no version below ``last`` is kept, so that the range goes on behind its key."""
    return not last.is_merge and last.seq <= progress.retention_min_seq


async def _last_row(reader: SstReader, sst: Sst) -> Entry:
    """The last row of an SST."""
    block_count = len((await reader.meta(sst)).index)
    rows = await reader.blocks(sst, block_count - 1, block_count)
    (last,) = entries_from_rows(rows.slice(len(rows) - 1, len(rows)))
    return last
