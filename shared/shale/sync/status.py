"""The state of an open writer; calls that wait block."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from shale.concurrency.blocking import BlockingHandle, Run, blocking, in_loop
from shale.engine import status, status_updates
from shale.engine.options import FlushType
from shale.engine.status_updates import StatusUpdate
from shale.errors import ShaleError
from shale.types import Manifest

T = TypeVar("T")


class StatusSubscription:
    """An iterator that waits for the next update; see ``shale.engine.status_updates.StatusSubscription``."""

    __slots__ = ("_inner", "_run")

    def __init__(self, inner: status_updates.StatusSubscription, run: Run) -> None:
        self._inner = inner
        self._run = run

    def __iter__(self) -> Iterator[StatusUpdate]:
        return self

    def __next__(self) -> StatusUpdate:
        update = self._run(_next(self._inner))
        if update is None:
            raise StopIteration
        return update


async def _next(inner: status_updates.StatusSubscription) -> StatusUpdate | None:
    return await anext(inner, None)


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
    def segments(self) -> list[bytes]:
        """The prefixes of all segments, also of rows in memory; empty in a database without segments."""
        return self._read(lambda inner: inner.segments)

    @property
    def rows_written(self) -> int:
        """Rows that this handle has accepted, tombstones and merge operands included."""
        return self._read(lambda inner: inner.rows_written)

    @property
    def is_full(self) -> bool:
        """Whether writes wait because ``unflushed_bytes`` is at its limit."""
        return self._inner.is_full

    @property
    def open_snapshots(self) -> int:
        """How many snapshots, transactions and scans under way hold a sequence number."""
        return self._read(lambda inner: inner.open_snapshots)

    @property
    def oldest_snapshot_seq(self) -> int | None:
        """The lowest sequence number that is held; ``None``: none is held."""
        return self._read(lambda inner: inner.oldest_snapshot_seq)

    @property
    def transaction_history_bytes(self) -> int:
        """Keys kept of flushed memtables, with which open transactions may conflict."""
        return self._read(lambda inner: inner.transaction_history_bytes)

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
        return self._read(lambda inner: inner.unflushed_bytes)

    def subscribe(self) -> StatusSubscription:
        """Return an iterator of ``StatusUpdate``: the status now, then the newest one after every change."""
        return StatusSubscription(self._inner.subscribe(), self._run)

    wait_failed = blocking(status.DbStatus.wait_failed)
    seq_at = in_loop(status.DbStatus.seq_at)
    time_of = in_loop(status.DbStatus.time_of)

    def _read(self, value: Callable[[status.DbStatus], T]) -> T:
        """Return a value, read in the thread of the event loop, which changes what it is made of."""
        return self._run(_read_from(self._inner, value))


async def _read_from(inner: status.DbStatus, value: Callable[[status.DbStatus], T]) -> T:
    return value(inner)
