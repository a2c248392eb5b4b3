"""Bringing frozen memtables to L0: gates, parallel uploads, and one manifest update for all that are ready, in order.

Source: docs/protocol.md 4.8, 4.10.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio.abc import TaskGroup

from shale.engine.checkpointing import WaitingCheckpoints, edit_of, settle
from shale.engine.frozen_table import FrozenTable, UploadState
from shale.engine.l0_plan import gate_reason, retirable, with_flushed, with_wal_end
from shale.engine.l0_upload import L0Uploader
from shale.engine.signal import Signal
from shale.engine.table_upload import TableUploads
from shale.engine.writer_parts import WriterParts
from shale.errors import ShaleError, UnavailableError
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Tree, Ulid

log = get_logger("memtable")


class MemtableFlusher:
    """Owns the way of every frozen table from its freeze to the manifest."""

    def __init__(
        self,
        parts: WriterParts,
        uploader: L0Uploader,
        *,
        sst_key: Callable[[Ulid], str],
        want_durable: Callable[[], None],
        checkpoints: WaitingCheckpoints,
        require_alive: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it up.

        Args:
            parts: of the writer.
            uploader: makes SSTs.
            sst_key: where an SST of ours is.
            want_durable: asks for a WAL flush.
            checkpoints: what manifest updates are to carry besides.
            require_alive: raises once the database is marked as destroyed; asked at every poll.
        """
        self._acceptor = parts.acceptor
        self._active = parts.active
        self._manifest = parts.manifest
        self._progress = parts.progress
        self._options = parts.options
        self._env = parts.env
        self._instruments = parts.instruments
        self._uploads = TableUploads(
            parts, uploader, sst_key=sst_key, min_seq=self._oldest_needed, on_trouble=self._progress.changed.notify
        )
        self._want_durable = want_durable
        self._checkpoints = checkpoints
        self._require_alive = require_alive
        self._signal = Signal()
        self._last_allocated_ms = 0
        self._stall: str | None = None
        self._gates_open = False
        self.closing = False

    @property
    def is_stuck(self) -> bool:
        """Whether waiting may be in vain: uploads fail, or L0 is full and nothing is on its way."""
        if self._uploads.failing:
            return True
        under_way = any(frozen.state is not UploadState.WAITING for frozen in self._acceptor.frozen)
        return self._stall is not None and not under_way

    def look(self) -> None:
        """Something has changed that may let a table move on."""
        self._signal.notify()

    def pass_gates(self) -> None:
        """Flush at close although L0 is full: without a WAL the rows are nowhere else."""
        self._gates_open = True
        self.look()

    async def run(self, fail: Callable[[ShaleError], None]) -> None:
        """Flush until cancelled.

        Args:
            fail: told of an error at once; it is raised only when uploads that cannot be cancelled have ended.

        Raises:
            FencedError: a newer writer has claimed; nothing more is written.
            UnavailableError: the store refuses the manifest while the database is being closed.
        """
        async with anyio.create_task_group() as uploads:
            try:
                while True:
                    self._dispatch(uploads)
                    if not await self._retire():
                        await self._signal.wait()
            except ShaleError as error:
                fail(error)
                raise

    async def sort(self) -> None:
        """Sort frozen tables, one after the other, until cancelled.

        Not left to the uploads: a table that waits for room in L0 would keep an object per row as long.
        """
        while True:
            frozen = next((table for table in self._acceptor.frozen if not table.sorted), None)
            if frozen is None:
                await self._signal.wait()
                continue
            frozen.table.adopt(await self._env.cpu.run(frozen.table.freeze))
            frozen.sorted = True
            self._signal.notify()

    async def poll(self) -> None:
        """Take over what other processes commit, again and again, until cancelled.

        Raises:
            FencedError: a newer writer has claimed, or a destroy, which fences before it puts its marker down.
            InvalidDbState: the database is marked, and this writer began between the fence and the marker.
        """
        while True:
            await anyio.sleep(self._options.manifest_poll_interval_s)
            await self.refresh()
            await self._check_markers()

    async def refresh(self) -> None:
        """Take over what other processes have committed.

        Raises:
            FencedError: a newer writer has claimed.
        """
        try:
            await self._manifest.refresh()
            await self._manifest.keep_up()
        except UnavailableError as error:
            log.info(Event.STORE_REQUEST_RETRIED, op="manifest", error=str(error))
            return
        self._instruments.manifest_refreshed()
        self.look()

    async def _check_markers(self) -> None:
        try:
            await self._require_alive()
        except UnavailableError as error:
            log.info(Event.STORE_REQUEST_RETRIED, op="markers", error=str(error))

    async def write_final(self) -> None:
        """Persist the end of the WAL, as the last thing before a clean close, and where replay begins."""
        await self._manifest.let_go()
        wal_id, last_seq = self._progress.durable_wal_id, self._acceptor.committed_seq
        await self._manifest.commit(lambda manifest: with_wal_end(manifest, wal_id, last_seq), is_final=True)

    def _dispatch(self, uploads: TaskGroup) -> None:
        """Start as many uploads as gates and parallelism allow, strictly in order."""
        running = 0
        trees: dict[bytes, Tree] = {}
        reserved: Counter[bytes] = Counter()
        for frozen in self._acceptor.frozen:
            if frozen.state is not UploadState.WAITING:
                running += frozen.state is UploadState.UPLOADING
                reserved.update(frozen.segments)
                continue
            if not frozen.sorted or running >= self._options.l0_flush_parallelism:
                return
            trees = trees or dict(self._manifest.current.trees())
            if self._is_stalled(trees, reserved, frozen):
                return
            frozen.state = UploadState.UPLOADING
            running += 1
            reserved.update(frozen.segments)
            uploads.start_soon(self._upload, frozen, [self._allocate() for _ in frozen.segments])
        self._stall = None

    def _is_stalled(self, trees: Mapping[bytes, Tree], reserved: Mapping[bytes, int], frozen: FrozenTable) -> bool:
        reason = gate_reason(
            trees,
            reserved,
            frozen.segments,
            l0_max_ssts=self._options.l0_max_ssts,
            l0_max_ssts_per_key=self._options.l0_max_ssts_per_key,
        )
        if reason is not None and self._stall is None:
            self._instruments.stalled(reason)
            limit = self._options.l0_max_ssts if reason == "num_ssts" else self._options.l0_max_ssts_per_key
            fullest = max(len(trees[prefix].l0) if prefix in trees else 0 for prefix in frozen.segments)
            log.warning(Event.MEMTABLE_FLUSH_STALLED, l0_ssts=fullest, limit=limit, type=reason)
        if reason != self._stall:
            self._stall = reason
            self._progress.changed.notify()
        return reason is not None and not self._gates_open

    def _allocate(self) -> Ulid:
        # Allocated here and not in the upload, so that the order of ids is the order in which they are published:
        # a collector takes everything older than the newest published L0 for an orphan.
        sst_id = self._env.ids.ulid(max(newest_l0_ms(self._manifest.current), self._last_allocated_ms))
        self._last_allocated_ms = sst_id.ms
        return sst_id

    async def _upload(self, frozen: FrozenTable, sst_ids: list[Ulid]) -> None:
        await self._uploads.upload(frozen, sst_ids)
        frozen.state = UploadState.UPLOADED
        self._instruments.l0_uploaded()
        self.look()

    async def _retire(self) -> bool:
        """Commit the tables that are ready; whether there were any."""
        ready = retirable(self._acceptor.frozen, self._progress.durable_seq, wal_enabled=self._options.wal_enabled)
        if not ready:
            self._hurry_wal()
            return False
        wal_id = self._progress.durable_wal_id
        due = self._checkpoints.due(ready[-1].last_seq)
        committed = await self._manifest.commit(
            lambda manifest: with_flushed(
                manifest, ready, last_flushed_wal_id=wal_id, oldest_read_seq=self._oldest_read(ready[-1].last_seq)
            ),
            edit_of(due),
            after=self._forget(ready),
            pause=self._pause,
        )
        settle(due, committed)
        last_seq = ready[-1].last_seq
        self._instruments.l0_flushed(len(ready), sum(_sst_bytes(frozen) for frozen in ready))
        self._progress.durable_through(last_seq)
        await self._acceptor.history.flushed([frozen.table for frozen in ready], self._env)
        self._progress.flushed_through(last_seq)
        return True

    def _oldest_needed(self) -> int:
        """The lowest sequence number at which somebody reads, or may begin to while this flush is under way."""
        durable, oldest = self._progress.durable_seq, self._active.oldest()
        return durable if oldest is None else min(durable, oldest)

    def _oldest_read(self, last_seq: int) -> int:
        """The same for compactions, which see this flush in the manifest: what is behind it is as good as durable.

        With the WAL disabled it becomes durable only with the manifest, and who reads what is durable may begin a
        moment before.
        """
        return min(last_seq, self._oldest_needed())

    async def _pause(self, error: UnavailableError) -> None:
        """Between two attempts at one commit; at close there is one attempt only."""
        if self.closing:
            raise error
        log.info(Event.STORE_REQUEST_RETRIED, op="manifest", error=str(error))
        await anyio.sleep(self._options.manifest_poll_interval_s)

    def _hurry_wal(self) -> None:
        """An uploaded table that waits for the WAL must not wait for a timer that may not exist."""
        frozen = self._acceptor.frozen
        if frozen and frozen[0].state is UploadState.UPLOADED and frozen[0].last_seq > self._progress.durable_seq:
            self._want_durable()

    def _forget(self, ready: list[FrozenTable]) -> Callable[[], None]:
        """Drops tables in the very moment in which reads find their rows in L0."""

        def forget() -> None:
            for _ in ready:
                self._acceptor.frozen.popleft()

        return forget


def _sst_bytes(frozen: FrozenTable) -> int:
    return sum(sst.info.index_offset + sst.info.index_len for _, sst in frozen.ssts)
