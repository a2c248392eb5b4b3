"""The state of an open writer; calls that wait block."""

from shale.concurrency.blocking import BlockingHandle, blocking, in_loop
from shale.engine import status
from shale.engine.options import FlushType
from shale.errors import ShaleError
from shale.types import Manifest


class DbStatus(BlockingHandle[status.DbStatus]):
    """See ``shale.engine.status.DbStatus``."""

    @property
    def writer_epoch(self) -> int:
        """The epoch of this writer."""
        return self._inner.writer_epoch

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that this writer knows."""
        return self._inner.manifest

    @property
    def manifest_id(self) -> int:
        """The version of ``manifest``."""
        return self._inner.manifest_id

    @property
    def last_seq(self) -> int:
        """The newest sequence number of a commit."""
        return self._inner.last_seq

    @property
    def durable_seq(self) -> int:
        """All rows up to this sequence number are durable."""
        return self._inner.durable_seq

    @property
    def quickest_flush(self) -> FlushType:
        """The flush that makes rows durable soonest."""
        return self._inner.quickest_flush

    @property
    def problem(self) -> ShaleError | None:
        """The error that stopped this writer, if any."""
        return self._inner.problem

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes in memtables and WAL buffer."""
        return self._run(_unflushed_bytes(self._inner))

    wait_failed = blocking(status.DbStatus.wait_failed)
    seq_at = in_loop(status.DbStatus.seq_at)
    time_of = in_loop(status.DbStatus.time_of)


async def _unflushed_bytes(inner: status.DbStatus) -> int:
    # In the thread of the event loop, which changes the tables that are counted.
    return inner.unflushed_bytes
