"""Commits flushed memtables: one manifest update names the SSTs of all tables that are ready, in order.

Source: docs/reference/protocol.md 4.8.
"""

from dataclasses import KW_ONLY, field

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.engine.flush.checkpointing import PendingCheckpoints, checkpoint_edit, resolve_pending
from shale.engine.flush.planner import retirable, with_flushed, with_wal_end
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.frozen_table import FrozenTable, UploadState
from shale.engine.options import DbOptions
from shale.engine.read.active_seqs import ActiveSeqs
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.errors import UnavailableError
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest

log = get_logger("memtable")


@dataclass(slots=True, eq=False)
class FlushCommitter:
    """Moves uploaded tables from memory to the manifest.

    Args:
        pipeline: owns the frozen tables and retires them.
        manifest: gets the SSTs.
        durability: both frontiers; advanced by each commit.
        active: the sequence numbers at which reads look.
        checkpoints: requested checkpoints that the next manifest update creates.
        options: WAL, poll interval.
        instruments: counts flushes.
    """

    pipeline: WritePipeline
    manifest: WriterManifest
    durability: DurabilityTracker
    _: KW_ONLY
    active: ActiveSeqs
    checkpoints: PendingCheckpoints
    options: DbOptions
    instruments: WriterInstruments
    _retries: bool = field(default=True, init=False)

    def stop_retrying(self) -> None:
        """Raise the next ``UnavailableError`` of the store: the database is being closed."""
        self._retries = False

    def oldest_needed_seq(self) -> int:
        """Return the lowest sequence number at which a read looks, or may begin to look during a flush."""
        durable, oldest = self.durability.durable_seq, self.active.oldest()
        return durable if oldest is None else min(durable, oldest)

    async def commit_ready(self) -> bool:
        """Commit the uploaded tables whose rows are durable, oldest first; return whether there were any.

        Raises:
            FencedError: a newer writer has claimed; nothing was written.
            UnavailableError: the store refused the manifest while the database is being closed.
        """
        frozen = self.pipeline.buffers.frozen.tables
        ready = retirable(frozen, self.durability.durable_seq, wal_enabled=self.options.wal_enabled)
        if not ready:
            if frozen and frozen[0].state is UploadState.UPLOADED and frozen[0].last_seq > self.durability.durable_seq:
                # The flush timer may be off, so nothing else would bring these rows to the WAL.
                self.pipeline.request_wal_flush()
            return False
        wal_id, last_seq = self.durability.durable_wal_id, ready[-1].last_seq
        due = self.checkpoints.due(last_seq)
        committed = await self.manifest.commit(
            lambda manifest: with_flushed(
                manifest,
                ready,
                last_flushed_wal_id=wal_id,
                # Compactors keep what is visible at this number.  They see this flush in the manifest, so its rows
                # count as durable: with the WAL disabled they become durable only with this commit, and a durable
                # read may begin a moment before.
                oldest_read_seq=min(last_seq, self.oldest_needed_seq()),
            ),
            checkpoint_edit(due),
            # Reads find the rows in L0 in the same moment in which the tables go.
            after=lambda: self.pipeline.retire(len(ready)),
            pause=self._pause,
        )
        resolve_pending(due, committed)
        self.instruments.l0_flushed(len(ready), sum(map(_sst_bytes, ready)))
        self.durability.advance_durable(last_seq)
        await self.pipeline.forget_flushed([frozen.table for frozen in ready])
        self.durability.advance_flushed(last_seq)
        return True

    async def commit_close(self) -> None:
        """Record where the WAL ends and where replay begins, as the last commit of a clean close."""
        wal_id, last_seq = self.durability.durable_wal_id, self.pipeline.committed_seq

        def end(manifest: Manifest) -> Manifest:
            return with_wal_end(manifest, wal_id, last_seq)

        if end(self.manifest.current) == self.manifest.current:
            # Nothing but the checkpoint would change, as when GC removes it: others would not see that this is the end.
            await self.manifest.release_checkpoint()
        await self.manifest.commit(end, is_final=True)

    async def _pause(self, error: UnavailableError) -> None:
        """Wait between two attempts at one commit."""
        if not self._retries:
            raise error
        log.info(Event.STORE_REQUEST_RETRIED, op="manifest", error=str(error))
        await anyio.sleep(self.options.manifest_poll_interval_s)


def _sst_bytes(frozen: FrozenTable) -> int:
    return sum(sst.info.index_offset + sst.info.index_len for _, sst in frozen.ssts)
