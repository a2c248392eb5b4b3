"""Publishes the state that reads of a writer see: one immutable super version after every change."""

from anyio.abc import TaskGroup

from shale.concurrency.read_ahead import ReadAhead
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.options import DbOptions
from shale.engine.read.active_seqs import ActiveSeqs, Held
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.read_point import ReadPoint, names_sst
from shale.engine.read.retained_views import RetainedViews
from shale.engine.read.super_version import SuperVersion
from shale.engine.write.buffers import WriteBuffers
from shale.errors import ShaleError, SstMissing
from shale.iter.merge_operator import MergeOperator
from shale.sst.reader import SstReader


class ViewPublisher:
    """Holds the newest super version as ``view``; the writer calls ``publish`` after every change.

    It is the ``ViewProvider`` of scans and the ``PointSource`` of lookups.

    Args:
        manifest: of the writer.
        buffers: the memtables of the write pipeline.
        active: the sequence numbers at which snapshots, transactions and scans read.
        reader: reads SSTs.
        operator: folds merge operands.
        options: the memory limits of the writer.
    """

    def __init__(
        self,
        manifest: WriterManifest,
        buffers: WriteBuffers,
        active: ActiveSeqs,
        *,
        reader: SstReader,
        operator: MergeOperator | None,
        options: DbOptions,
    ) -> None:
        self.reader = reader
        self._manifest = manifest
        self._buffers = buffers
        self._active = active
        self._options = options
        self._read_options = ReadOptions(merge_operator=operator)
        self._read_ahead: ReadAhead | None = None
        self._retained = RetainedViews()
        self._must_ask = options.enforce_visible_range is not None
        self.points: dict[int, ReadPoint] = {}
        """The read points of snapshots and transactions in the newest view, by the number of their ``Held``.

        Snapshots do not keep the points themselves: an idle one would keep the memtables of an old view in memory.
        """
        self.view = self._new_view(None)
        self.point = ReadPoint(self.view, None, self)
        self.fast_point = self._fast_point()

    @property
    def merge_operator(self) -> MergeOperator | None:
        """The operator that folds operands; its errors name the operator and the key."""
        return self._read_options.merge_operator

    def start(self, tasks: TaskGroup) -> None:
        """Run read-ahead in a task group."""
        self._read_ahead = ReadAhead(tasks)
        self._read_options = ReadOptions(merge_operator=self.merge_operator, read_ahead=self._read_ahead)
        self.publish()

    def publish(self) -> None:
        """Let reads see the manifest and the memtables as they are now."""
        self._retained.add(self.view)
        self.view = self._new_view(self.view)
        self._retained.shrink(self._retained_bytes_max(), self.view.tables)
        self.point = ReadPoint(self.view, None, self)
        self.points.clear()
        self.fast_point = self._fast_point()

    def disable_fast_point(self) -> None:
        """Make every lookup ask the handle whether it may read: the writer failed or is being closed."""
        self._must_ask = True
        self.fast_point = None

    def end_tasks(self, error: ShaleError | None = None) -> None:
        """Start no more work in the task group, which is about to end (``ReadAhead.close``), and end fast reads."""
        self.disable_fast_point()
        if self._read_ahead is not None:
            self._read_ahead.close(error)

    def hold(self, seq: int) -> Held:
        """Keep what is visible at ``seq``; see ``ViewProvider``."""
        return self._active.hold(seq)

    def newest_view(self) -> SuperVersion:
        """Return the newest view; see ``ViewProvider``."""
        return self.view

    async def on_sst_missing(self, gone: SstMissing) -> None:
        """Read the newest manifest, which must not name the missing SST; see ``ViewProvider``.

        Reads that hold a sequence number go on at it: flushes and compactions keep the versions that it needs.
        """
        if names_sst(self._manifest.current, gone.id):
            await self._manifest.refresh()
            if names_sst(self._manifest.current, gone.id):
                self.reader.sections.count_missing()
                raise gone

    def _fast_point(self) -> ReadPoint | None:
        """Return the point for lookups that need no check; ``None`` if every lookup must be checked."""
        return None if self._must_ask else self.point

    def _new_view(self, previous: SuperVersion | None) -> SuperVersion:
        frozen = [frozen.table for frozen in reversed(self._buffers.frozen.tables)]
        tables = [self._buffers.active, *frozen]
        return SuperVersion(self._manifest.current, tables, self.reader, self._read_options, previous=previous)

    def _retained_bytes_max(self) -> int:
        """Return how many bytes of flushed memtables scans may retain: what writes leave, at least an eighth."""
        options = self._options
        left = options.max_unflushed_bytes - self._buffers.unflushed_bytes - options.l0_sst_size_bytes
        return max(left, options.max_unflushed_bytes // 8)
