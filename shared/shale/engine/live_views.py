"""What reads of a writer see: the newest view, and where lookups, snapshots and scans look in it."""

from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

from shale.engine.active_seqs import Held
from shale.engine.old_views import OldViews
from shale.engine.read_options import ReadOptions
from shale.engine.read_point import ReadPoint, names_sst
from shale.engine.read_view import ReadView
from shale.engine.writer_parts import WriterParts
from shale.errors import SstMissing
from shale.iter.merge_operator import MergeOperator
from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader


class LiveViews:
    """Shows the manifest and the memtables as they are: whoever changes one of them calls ``publish``.

    It is the ``Keeper`` of scans and the ``Home`` of lookups.

    Args:
        parts: of the writer.
        reader: reads SSTs.
        operator: folds merge operands.
    """

    def __init__(self, parts: WriterParts, reader: SstReader, operator: MergeOperator | None) -> None:
        self.reader = reader
        self._parts = parts
        self._options = ReadOptions(merge_operator=operator)
        self._read_ahead: ReadAhead | None = None
        self._old = OldViews()
        self._must_ask = parts.options.enforce_visible_range is not None
        self.view = self._new_view(None)
        self.point = ReadPoint(self.view, None, self)
        self.points: dict[int, ReadPoint] = {}
        """Where snapshots and transactions look in this view, by the number of their claim.

        They do not keep it themselves: one that rests would keep the memtables of an old view in memory.
        """
        self.open_point = self._open_point()

    @property
    def merge_operator(self) -> MergeOperator | None:
        """What folds operands; its errors name the operator and the key."""
        return self._options.merge_operator

    @property
    def note_plain_rows(self) -> Callable[[int], None]:
        """Told how many rows were written while the kernels are not loaded."""
        return self._options.hot_path.note_plain_rows

    def start(self, tasks: TaskGroup) -> Callable[[], Awaitable[None]]:
        """Read ahead and write behind in a task group; what it returns is to be run there."""
        self._read_ahead = ReadAhead(tasks)
        self.reader.write_behind(tasks)
        hot_path = self._options.hot_path
        self._options = ReadOptions(merge_operator=self.merge_operator, read_ahead=self._read_ahead, hot_path=hot_path)
        self.publish()
        return lambda: hot_path.run(self._parts.env)

    def publish(self) -> None:
        """Let reads see the manifest and the memtables as they are now."""
        self._old.add(self.view)
        self.view = self._new_view(self.view)
        self._old.shrink(self._room_for_scans(), self.view.tables)
        self.point = ReadPoint(self.view, None, self)
        self.points.clear()
        self.open_point = self._open_point()

    def shut(self) -> None:
        """From now on every lookup has to ask whether it may happen."""
        self._must_ask = True
        self.open_point = None

    def end_tasks(self) -> None:
        """Begin nothing more in the task group, which is about to end."""
        if self._read_ahead is not None:
            self._read_ahead.close()
        self.reader.write_behind(None)

    def hold(self, seq: int) -> Held:
        """Keep what is visible at ``seq``; see ``Keeper``."""
        return self._parts.active.hold(seq)

    def newest(self) -> ReadView:
        """What reads see now; see ``Keeper``."""
        return self.view

    async def renew(self, gone: SstMissing) -> None:
        """Do without an SST that is gone; see ``Keeper``.

        Whoever holds a sequence number goes on at it: flushes and compactions keep what it needs.
        """
        manifest = self._parts.manifest
        if names_sst(manifest.current, gone.id):
            await manifest.refresh()
            if names_sst(manifest.current, gone.id):
                self.reader.count_loss()
                raise gone

    def _open_point(self) -> ReadPoint | None:
        """Where lookups may look without asking: nowhere if each of them has to be judged."""
        return None if self._must_ask else self.point

    def _new_view(self, previous: ReadView | None) -> ReadView:
        acceptor = self._parts.acceptor
        tables = [acceptor.table, *(frozen.table for frozen in reversed(acceptor.frozen))]
        return ReadView(self._parts.manifest.current, tables, self.reader, self._options, previous=previous)

    def _room_for_scans(self) -> int:
        """What flushed memtables may take for scans: what writes leave of the budget, an eighth of it at least."""
        options = self._parts.options
        left = options.max_unflushed_bytes - self._parts.acceptor.unflushed_bytes - options.l0_sst_size_bytes
        return max(left, options.max_unflushed_bytes // 8)
