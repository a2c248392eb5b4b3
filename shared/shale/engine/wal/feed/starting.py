"""Find the file of a sequence number in the WAL."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Self

from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.feed.frontier import Frontier
from shale.engine.wal.feed.offset import FeedOffset
from shale.engine.wal.feed.reading import HOW_TO_GO_ON
from shale.engine.wal.feed.seq_span import SeqSpan
from shale.engine.wal.file import EMPTY_FILE_BYTES_MAX
from shale.errors import FeedGap, InvalidRequestError
from shale.protocol.wal_completeness import WalGap, find_gaps
from shale.protocol.wal_store import WalFile

_LATER = 'start="latest" returns changes from now on, on_gap="skip" goes on without the missing ones'
ReadSpan = Callable[[tuple[int, int]], Awaitable[SeqSpan | None]]


@dataclass(frozen=True, slots=True)
class WalRun:
    """The longest range of files without a gap that ends at the frontier; gaps of lost files may be spanned.

    ``before_id``: the id before its first file.  ``files``: ids and sizes of the files with rows.
    """

    before_id: int
    last_id: int
    files: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, listed: Iterable[WalFile], frontier: Frontier, *, spans_lost: bool = False) -> Self:
        """Return the run in a listing; the listing must be newer than the frontier.

        Args:
            listed: all files.
            frontier: the end of the run.
            spans_lost: also take files before one that is missing although replay needs it.
        """
        sizes = {int(file.id): file.size for file in listed}
        first = last = int(frontier.wal_id)
        if spans_lost:
            first = min(first, int(frontier.manifest.replay_after_wal_id))
        while first in sizes:
            first -= 1
        ids = sorted(id_ for id_ in sizes if first < id_ <= last)
        return cls(first, last, tuple((id_, sizes[id_]) for id_ in ids if sizes[id_] > EMPTY_FILE_BYTES_MAX))

    def after(self, wal_id: int) -> Self:
        """Return the run without the files up to ``wal_id``."""
        before_id = min(max(self.before_id, wal_id), self.last_id)
        return replace(self, before_id=before_id, files=tuple(file for file in self.files if file[0] > before_id))


def find_lost(run: WalRun, frontier: Frontier, listed: Iterable[WalFile]) -> tuple[WalGap, ...]:
    """Return the files that replay needs and that are not in a listing: GC deletes none above the replay point.

    A hole after the run is left out unless the manifest knows of the file; it may be written at this moment.
    """
    manifest = frontier.manifest
    last_id = max(run.before_id, manifest.next_wal_sst_id - 1)
    return find_gaps((int(file.id) for file in listed), int(manifest.replay_after_wal_id) + 1, last_id)


def refuse_without_wal(run: WalRun, frontier: Frontier) -> None:
    """Raise if SSTs have rows although every WAL file there ever was is a fence.

    No record says that the WAL is off.  But if GC deleted no file and no file has rows, the rows of SSTs bypassed it.

    Raises:
        FeedGap: no change of the database is in the WAL.
    """
    trees = [tree for _, tree in frontier.manifest.trees()]
    has_rows = any(tree.l0 or tree.compacted or tree.last_compacted_l0_sst_view_id is not None for tree in trees)
    if has_rows and not run.files and run.before_id == 0:
        changes = frontier.manifest.last_l0_seq
        files = f"files, up to {run.last_id}, are all fences" if run.last_id else "first file is still to come"
        raise FeedGap(
            f"start: none of the {changes} changes of this database ever went through the WAL, whose {files}:"
            f" its writer works without one (wal_enabled), or all rows were loaded in bulk; {_LATER}"
        )


def refuse_late_start(run: WalRun, seq: int, first: int) -> None:
    """Raise if GC deleted no WAL file and the WAL begins after a wanted change.

    Args:
        run: the files of the WAL.
        seq: the first wanted change.
        first: the first change of the WAL.

    Raises:
        FeedGap: the changes before ``first`` never were in the WAL.
    """
    if run.before_id == 0 and seq < first:
        raise FeedGap(
            f"start: the changes 1 to {first - 1} never went through the WAL, which begins with change {first}: they"
            f" were loaded in bulk, came with a clone, or are of a writer without a WAL; {_LATER}, and"
            f' start="seq:{first}" returns every change of the WAL'
        )


async def offset_from_seq(run: WalRun, seq: int, last_l0_seq: int, read: ReadSpan, *, skips: bool) -> FeedOffset:
    """Return the offset before the change ``seq``.

    Args:
        run: the files of the WAL.
        seq: the first wanted change.
        last_l0_seq: the last change in L0.
        read: reads the sequence numbers of a file.
        skips: if ``seq`` is gone, begin with the first change of the WAL.

    Raises:
        FeedGap: the WAL does not have the change.
        InvalidRequestError: ``seq`` is above the next sequence number.
    """
    seq = max(seq, 1)  # no change has 0
    place = await _first_reaching(run, seq, read)
    if place == len(run.files):
        last = await read(run.files[-1]) if run.files else None
        known = max(last.last if last is not None else 0, last_l0_seq)
        if seq > known + 1:
            raise InvalidRequestError(f"start: the last change is {known}, so a feed cannot begin with {seq}")
        if seq <= known and not skips:
            raise FeedGap(f"start: change {seq} is in the database, but in no file of the WAL: {HOW_TO_GO_ON}")
        return FeedOffset(run.last_id, max(seq - 1, known))
    file_id, _ = run.files[place]
    span = await read(run.files[place])
    assert span is not None, "files without rows are not in the run"
    if place == 0 and span.first > seq and not skips:
        refuse_late_start(run, seq, span.first)
        raise _gone(seq, run)
    if span.first >= seq:
        return FeedOffset(file_id - 1, seq - 1)
    return FeedOffset(file_id - 1, seq - 1, is_inside=True)


def _gone(seq: int, run: WalRun) -> FeedGap:
    return FeedGap(
        f"start: the WAL begins with file {run.before_id + 1}, and change {seq} may have been before it: {HOW_TO_GO_ON}"
    )


async def _first_reaching(run: WalRun, seq: int, read: ReadSpan) -> int:
    """Return the index in ``run.files`` of the first file that ends at or above ``seq``; their count if none does."""
    low, high = 0, len(run.files)
    while low < high:
        middle = (low + high) // 2
        span = await read(run.files[middle])
        assert span is not None, "files without rows are not in the run"
        if span.last >= seq:
            high = middle
        else:
            low = middle + 1
    return low
