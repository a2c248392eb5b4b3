"""``WalFeed``: finds the start offset, the end of the next batch, and its parts; ``reading`` reads the parts.

The frontier comes from probes, never from a listing.  Every file of a batch must exist; otherwise the batch fails and
names the missing files.  Changes that bypassed the WAL (a writer without a WAL, a bulk load) are detected by sequence
numbers: the changes that a manifest has in L0 must be in the WAL files that existed when the manifest was written.

Source: docs/reference/protocol.md 4.3, 4.6, 5.5.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from shale.concurrency.gather import gather
from shale.engine.wal.feed.frontier import Frontier, find_frontier
from shale.engine.wal.feed.offset import Edge, FeedOffset, FeedStart, FromSeq
from shale.engine.wal.feed.plan import FeedPart, cut, end_id
from shale.engine.wal.feed.reading import HOW_TO_GO_ON, OnGap
from shale.engine.wal.feed.seq_span import SeqSpan, read_seq_span
from shale.engine.wal.feed.starting import WalRun, find_lost, offset_from_seq, refuse_late_start, refuse_without_wal
from shale.engine.wal.file import EMPTY_FILE_BYTES_MAX
from shale.env import Env
from shale.errors import FeedGap, WalTruncated
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_completeness import WalGap, find_gaps, log_skipped, show_gaps, wal_lost
from shale.protocol.wal_store import WalStore

PART_BYTES = 32 << 20
PARTS_MAX = 64
_OPEN_ATTEMPTS_MAX = 5


class WalFeed:
    """Plans batches of one database's WAL.  Keeps no state between calls: the offset is the whole state.

    Args:
        wal, manifests: the database.
        env: CPU.
        on_gap: what to do if changes are missing.
        on_skipped: called with the missing files whose changes are left out; by default they are logged.
    """

    def __init__(
        self,
        wal: WalStore,
        manifests: ManifestStore,
        env: Env,
        *,
        on_gap: OnGap = OnGap.FAIL,
        on_skipped: Callable[[Sequence[WalGap]], None] | None = None,
    ) -> None:
        self._wal = wal
        self._manifests = manifests
        self._env = env
        self._on_gap = on_gap
        self._on_skipped = on_skipped if on_skipped is not None else partial(log_skipped, wal)

    async def begin(self, start: FeedStart, *, kept_after: int = 0) -> FeedOffset:
        """Return the offset of a feed that has read nothing yet.

        Args:
            start: where to begin.
            kept_after: GC may delete files up to this one at any time, so ``earliest`` begins after it.

        Raises:
            FeedGap: the WAL no longer has the wanted changes, or never had any.
            InvalidRequestError: ``start`` is above the next sequence number.
            WalTruncated: listed files, or files that replay needs, were missing in every attempt.
        """
        for _ in range(_OPEN_ATTEMPTS_MAX - 1):
            # GC deleted a file after it was listed, or before the newest manifest was read: try again with newer ones.
            with suppress(WalTruncated):
                return await self._begin(start, kept_after)
        return await self._begin(start, kept_after)

    async def _begin(self, start: FeedStart, kept_after: int) -> FeedOffset:
        frontier = await find_frontier(self._wal, self._manifests, skips=self._skips)
        listed = await self._wal.list()
        run = WalRun.of(listed, frontier, spans_lost=self._skips)
        if start is Edge.EARLIEST:
            self._refuse_lost(find_lost(run, frontier, listed), frontier)
        if start is Edge.LATEST:  # asks for no past change, so there can be no gap
            last = await self._last_seq(0, frontier.wal_id, 0)
            return FeedOffset(frontier.wal_id, max(last, frontier.manifest.last_l0_seq))
        last_l0_seq = int(frontier.manifest.last_l0_seq)
        if not self._skips and not (isinstance(start, FromSeq) and start.seq > last_l0_seq):
            refuse_without_wal(run, frontier)
        if isinstance(start, FromSeq):
            return await offset_from_seq(run, start.seq, last_l0_seq, self._span, skips=self._skips)
        run = run.after(kept_after)
        first = await self._span(run.files[0]) if run.files else None
        if first is not None and not self._skips:
            refuse_late_start(run, 1, first.first)
        return FeedOffset(run.before_id, first.first - 1 if first else last_l0_seq)

    async def end(self, start: FeedOffset, *, max_files: int | None = None) -> FeedOffset:
        """Return the end of the batch after ``start``: the frontier, or ``max_files`` files later.

        Raises:
            FeedGap: the database has changes that are not in the WAL.
            InvalidDbState: the WAL ends before ``start``.
        """
        frontier = await find_frontier(self._wal, self._manifests, start.wal_id, skips=self._skips)
        last_id = end_id(start, frontier.wal_id, max_files)
        seq = await self._last_seq(start.wal_id, last_id, start.seq)
        last_l0_seq = frontier.manifest.last_l0_seq
        if last_id == frontier.wal_id and seq < last_l0_seq:
            await self._refuse_bypass(start, frontier, seq)
            seq = last_l0_seq
        return FeedOffset(last_id, seq, start.is_inside and last_id == start.wal_id)

    async def frontier_id(self) -> int:
        """Return the id of the last WAL file."""
        return (await find_frontier(self._wal, self._manifests, skips=self._skips)).wal_id

    async def plan(
        self, start: FeedOffset, end: FeedOffset, *, part_bytes: int = PART_BYTES, parts_max: int = PARTS_MAX
    ) -> tuple[FeedPart, ...]:
        """Split the range between two offsets into ordered parts that can be read independently.

        Returns:
            no part if the range has no changes.

        Raises:
            FeedGap: files of the range are gone.
        """
        first_id = start.wal_id + 1
        sizes = await self._sizes(first_id, end.wal_id)
        self._refuse_gaps(first_id, end.wal_id, sizes)
        filled = [size if size is not None and size > EMPTY_FILE_BYTES_MAX else 0 for size in sizes]
        ranges = cut(first_id, filled, part_bytes=part_bytes, parts_max=parts_max)
        parts: list[FeedPart] = []
        after_seq = start.seq
        for number, files in enumerate(ranges):
            parts.append(FeedPart(files.first_id, files.last_id, after_seq, start.is_inside and number == 0))
            if number + 1 < len(ranges):
                after_seq = await self._last_seq_of(files.last_id, filled[files.last_id - first_id], after_seq)
        return tuple(parts)

    @property
    def _skips(self) -> bool:
        return self._on_gap is OnGap.SKIP

    async def _span(self, file: tuple[int, int]) -> SeqSpan | None:
        return await read_seq_span(self._wal, *file, self._env)

    async def _last_seq(self, after_id: int, last_id: int, seq: int) -> int:
        """Return the last sequence number of the files in ``(after_id, last_id]``; ``seq`` if they have none."""
        for wal_id in range(last_id, after_id, -1):
            size = await self._wal.size(wal_id)
            if size is None:
                return seq  # GC deleted the file; ``plan`` raises if the batch needs it.
            try:
                span = await self._span((wal_id, size))
            except WalTruncated:
                return seq
            if span is not None:
                return max(seq, span.last)
        return seq

    async def _last_seq_of(self, wal_id: int, size: int, seq: int) -> int:
        """Return the last sequence number of one file; the part after it must begin above this."""
        try:
            span = await self._span((wal_id, size))
        except WalTruncated as error:
            if self._skips:
                return seq
            raise FeedGap(f"the file is gone before it was read; {HOW_TO_GO_ON}", path=self._wal.key(wal_id)) from error
        return span.last if span is not None else seq

    async def _sizes(self, first_id: int, last_id: int) -> Sequence[int | None]:
        if first_id > last_id:
            return ()
        return await gather([partial(self._wal.size, wal_id) for wal_id in range(first_id, last_id + 1)])

    def _refuse_lost(self, gaps: Sequence[WalGap], frontier: Frontier) -> None:
        """Raise ``WalTruncated`` for files that replay needs; if gaps are skipped, ``plan`` names all but the last."""
        if gaps and not self._skips:
            raise wal_lost(self._wal, gaps)
        if gaps and gaps[-1].first_id > frontier.wal_id:
            self._on_skipped(gaps[-1:])

    def _refuse_gaps(self, first_id: int, last_id: int, sizes: Sequence[int | None]) -> None:
        present = (wal_id for wal_id, size in enumerate(sizes, first_id) if size is not None)
        gaps = find_gaps(present, first_id, last_id)
        if gaps and not self._skips:
            raise FeedGap(
                f"of the WAL files {first_id} to {last_id}, which were not read yet, {show_gaps(gaps)} are gone: GC"
                f" deleted them while this feed was not read, or they are lost; {HOW_TO_GO_ON}",
                path=self._wal.key(gaps[0].first_id),
            )
        if gaps:
            self._on_skipped(gaps)

    async def _refuse_bypass(self, start: FeedOffset, frontier: Frontier, seq: int) -> None:
        """Raise ``FeedGap`` because the database has changes that no WAL file has; return if gaps are skipped."""
        if self._skips:
            return
        replay_after = int(frontier.manifest.replay_after_wal_id)
        self._refuse_gaps(start.wal_id + 1, replay_after, await self._sizes(start.wal_id + 1, replay_after))
        raise FeedGap(
            f"the changes {seq + 1} to {frontier.manifest.last_l0_seq} never went through the WAL, which ends with file"
            f" {frontier.wal_id}: the writer works without a WAL, or rows were loaded in bulk; {HOW_TO_GO_ON}"
        )
