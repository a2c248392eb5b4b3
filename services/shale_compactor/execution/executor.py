"""Execute one job in this process: merge its inputs, range by range, into new SSTs (docs/reference/protocol.md 6.11).

The executor writes neither manifest nor compactions.  An interrupted job leaves unreferenced SSTs; ``JobProgress``
has the last one of each range, after which the next attempt continues.
"""

from collections.abc import Sequence
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from shale.compaction.filters import FilterContext
from shale.concurrency.first_error import first_error
from shale.concurrency.read_ahead import ReadAhead
from shale.env import Env
from shale.errors import MergeOperatorFailed, UnavailableError
from shale.iter.compaction import compaction_source
from shale.iter.compaction_filter import CompactionFilterSource
from shale.iter.merge_operator import MergeOperator, OperandCheckSource, checked_operator
from shale.iter.resume import ResumeSource
from shale.iter.retention import RetentionPolicy, without_old_tombstones
from shale.iter.source import RowSource
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import entries_from_rows
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.reader import SstReader
from shale.sst.source import BlockSource
from shale.store.port import ObjectStore, SstUploads
from shale.telemetry.metrics import Metrics
from shale.types import Entry, KeyRange, Sst, excluded, included
from shale_compactor.execution.buffers import Buffers, hash_bytes_of, plan_buffers
from shale_compactor.execution.inputs import JobInputs
from shale_compactor.execution.job import Job, JobExecutor, check_ascending
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.run_writer import OutputOptions, RunWriter
from shale_compactor.execution.subcompactions import ranges_of
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms


class ExecutorMetrics:
    """Counters of one executor."""

    def __init__(self, metrics: Metrics) -> None:
        self.folded = metrics.counter("slatedb_merge_operator_operands_total", path="compact").inc
        self.refused = metrics.counter("slatedb_merge_operator_failures_total", path="compact").inc
        name = "slatedb_compactor_expired_entries_total"
        self._expired = {kind: metrics.counter(name, entry_type=kind).inc for kind in ("value", "merge")}

    def expired(self, values: int, operands: int) -> None:
        """Count expired rows: values and merge operands."""
        self._expired["value"](values)
        self._expired["merge"](operands)


_COPIES_OF_BLOCKS = 2  # the current chunk and the one read ahead
_COPIES_OF_ROWS = 8  # both chunks, stored and decoded, and as much for the output of later stages
_SAMPLED_MAX = 4


class Executor(JobExecutor):
    """Executes jobs in this process."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: Transforms = NO_TRANSFORMS,
        metrics: Metrics | None = None,
        range_slots: anyio.Semaphore | None = None,
    ) -> None:
        """Create an executor.  Executors of several databases share ``range_slots``, and with them the memory."""
        self._store = store
        self._root = root
        self._env = env
        self._options = options
        self._transforms = transforms
        self._metrics = ExecutorMetrics(metrics if metrics is not None else Metrics())
        self._operator: MergeOperator | None = None
        if transforms.operator is not None:
            self._operator = checked_operator(transforms.operator, transforms.operator_name)
        self._slots = range_slots if range_slots is not None else anyio.Semaphore(options.max_active_ranges)

    @property
    def buffer_bytes(self) -> int:
        """The memory of the key ranges that are merged now; those of other executors with the same slots included."""
        return used_buffer_bytes(self._options, self._slots)

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """Merge all rows that ``progress`` does not have yet; return all outputs in key order.

        Raises:
            CorruptionError: an input is malformed, or the outputs do not ascend.
            MergeOperatorMissing: there are merge operands and no operator, and ``merge_passthrough`` is off.
            CompactionFilterFailed: a compaction filter raised.
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
            # An unexpected cancellation, for example by a client library, ends a task group without an error.
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
                progress.rework_bytes += writer.unfinished_bytes
                writer.abandon()

    def _writer(self, job: Job, progress: JobProgress, index: int, tasks: TaskGroup, part_bytes: int) -> RunWriter:
        return RunWriter(
            self._uploads(),
            self._root,
            self._env,
            tasks,
            options=OutputOptions(
                sst=replace(self._options.sst, merged_part_bytes=part_bytes),
                max_sst_size_bytes=self._options.max_sst_size_bytes,
                not_before_ms=job.id.ms,
            ),
            on_sst=lambda sst: progress.add(index, sst),
        )

    def _uploads(self) -> SstUploads:
        disk = self._options.output_cache
        if disk is None or not disk.cache_on_compaction:
            return self._store
        return PROCESS_CACHE.uploads(self._store, disk, self._env)

    async def _fill(
        self, writer: RunWriter, job: Job, progress: JobProgress, inputs: JobInputs, index: int, *, hash_bytes: int
    ) -> None:
        """Write the remaining rows of a range."""
        keys, written = progress.ranges[index], progress.last_output(index)
        last = None if written is None else await _last_row(inputs.reader, written)
        if self._merges_blocks() and (last is None or _ends_its_key(last, progress)):
            rest = keys if last is None else keys.intersect(KeyRange(start=excluded(last.key)))
            read_bytes = self._buffers(inputs, hash_bytes, _COPIES_OF_BLOCKS).read_bytes
            await self._merge_blocks(writer, job, progress, inputs.blocks(rest, read_bytes))
            return
        read_bytes = self._buffers(inputs, hash_bytes, _COPIES_OF_ROWS).read_bytes
        source = self._source(job, progress, inputs, keys, last, read_bytes=read_bytes)
        while (rows := await source.next()) is not None:
            progress.note_rows(rows.size_bytes)
            await writer.add(rows)

    def _merges_blocks(self) -> bool:
        """Return whether to merge stored blocks: with kernels, if no transform needs single rows."""
        transforms = self._transforms
        if self._operator is not None or transforms.filters or not transforms.merge_passthrough:
            return False
        if self._options.sst.filters_need_rows:
            return False
        return use_kernels()

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
        """Return the rows after ``last``, the last row of an earlier attempt."""
        if last is None:
            return self._filtered(job, progress, keys, self._merged(job, progress, inputs.rows(keys, read_bytes)))
        rest = keys.intersect(KeyRange(start=included(last.key)))
        merged = self._merged(job, progress, inputs.rows(rest, read_bytes))
        source = ResumeSource(merged, last, progress.retention_min_seq)
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
            source = CompactionFilterSource(source, filter_, context, self._env, after=after)
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
            on_merge_failure=refused,
        )
        return (
            merged if self._operator is not None or self._transforms.merge_passthrough else OperandCheckSource(merged)
        )

    def _buffers(self, inputs: JobInputs, hash_bytes: int, copies: int) -> Buffers:
        return plan_buffers(self._options, sources=inputs.source_count, copies=copies, hash_bytes=hash_bytes)

    async def _hash_bytes(self, job: Job, reader: SstReader) -> int:
        stride = max(1, -(-len(job.views) // _SAMPLED_MAX))
        views = job.views[::stride]
        sampled = [(view.sst.info.data_len, (await reader.meta(view.sst)).stats) for view in views]
        return hash_bytes_of(self._options, sampled, job.input_bytes)


def _retention(job: Job, progress: JobProgress) -> RetentionPolicy:
    return RetentionPolicy(
        min_seq=progress.retention_min_seq, now_tick=job.clock_tick, drop_tombstones=job.is_dest_last_run
    )


def _ends_its_key(last: Entry, progress: JobProgress) -> bool:
    """Return whether no older version of the key of ``last`` is kept, so that the range continues after that key."""
    return not last.is_merge and last.seq <= progress.retention_min_seq


async def _last_row(reader: SstReader, sst: Sst) -> Entry:
    """Return the last row of an SST."""
    block_count = len((await reader.meta(sst)).index)
    rows = await reader.rows(sst, block_count - 1, block_count)
    (last,) = entries_from_rows(rows.slice(len(rows) - 1, len(rows)))
    return last


def used_buffer_bytes(options: ExecutorOptions, slots: anyio.Semaphore) -> int:
    """Return the memory of the key ranges that are merged now, of all executors with these slots."""
    most = options.max_active_ranges
    return options.memory_bytes * (most - slots.value) // most
