"""Flushes frozen memtables to L0: sorts them, uploads them in parallel, and has the ready ones committed in order.

Source: docs/reference/protocol.md 4.8.
"""

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from shale.concurrency.signal import Signal
from shale.engine.flush.admission import L0Admission
from shale.engine.flush.committer import FlushCommitter
from shale.engine.flush.uploader import TableUploader
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.frozen_table import FrozenTable, FrozenTables, UploadState
from shale.engine.write.instruments import WriterInstruments
from shale.env import Env
from shale.errors import ShaleError
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.types import Ulid


class MemtableFlusher:
    """Takes every frozen table from its freeze to the manifest.

    Args:
        frozen: the tables of the write pipeline.
        admission: decides which tables are uploaded.
        uploader: makes their SSTs.
        committer: commits the tables and retires them.
        manifest: its newest L0 bounds the ids of new SSTs.
        env: CPU and ids.
        instruments: counts uploads.
    """

    def __init__(
        self,
        frozen: FrozenTables,
        admission: L0Admission,
        uploader: TableUploader,
        committer: FlushCommitter,
        *,
        manifest: WriterManifest,
        env: Env,
        instruments: WriterInstruments,
    ) -> None:
        self._frozen = frozen
        self._admission = admission
        self._uploader = uploader
        self._committer = committer
        self._manifest = manifest
        self._env = env
        self._instruments = instruments
        self._signal = Signal()
        self._last_id_ms = 0

    @property
    def is_stuck(self) -> bool:
        """Whether a wait may never end: uploads fail, or L0 is full and no upload is under way."""
        if self._uploader.failing:
            return True
        uploads = any(frozen.state is not UploadState.WAITING for frozen in self._frozen.tables)
        return self._admission.stall_reason is not None and not uploads

    def wake(self) -> None:
        """Check all tables again: something changed that may let one move on."""
        self._signal.notify()

    async def run(self, fail: Callable[[ShaleError], None]) -> None:
        """Flush until cancelled.

        Args:
            fail: called with an error at once; the error is raised after the uploads under way have ended.

        Raises:
            FencedError: a newer writer has claimed; nothing more is written.
            UnavailableError: the store refused the manifest while the database is being closed.
        """
        async with anyio.create_task_group() as uploads:
            try:
                while True:
                    self._start_uploads(uploads)
                    if not await self._committer.commit_ready():
                        await self._signal.wait()
            except ShaleError as error:
                fail(error)
                raise

    async def sort(self) -> None:
        """Sort frozen tables, one after the other, until cancelled.

        The uploads do not sort: a table that waits for room in L0 would keep an object per row all that time.
        """
        while True:
            frozen = next((table for table in self._frozen.tables if not table.sorted), None)
            if frozen is None:
                await self._signal.wait()
                continue
            frozen.table.adopt(await self._env.cpu.run(frozen.table.freeze))
            frozen.sorted = True
            self._signal.notify()

    def _start_uploads(self, uploads: TaskGroup) -> None:
        for frozen in self._admission.admit(self._frozen.tables):
            frozen.state = UploadState.UPLOADING
            uploads.start_soon(self._upload, frozen, [self._new_sst_id() for _ in frozen.segments])

    def _new_sst_id(self) -> Ulid:
        # Assigned before the upload, so that ids ascend in the order in which the SSTs are published: the garbage
        # collector takes an unpublished SST that is older than the newest published L0 for an orphan.
        sst_id = self._env.ids.ulid(max(newest_l0_ms(self._manifest.current), self._last_id_ms))
        self._last_id_ms = sst_id.ms
        return sst_id

    async def _upload(self, frozen: FrozenTable, sst_ids: list[Ulid]) -> None:
        await self._uploader.upload(frozen, sst_ids)
        frozen.state = UploadState.UPLOADED
        self._instruments.l0_uploaded()
        self.wake()
