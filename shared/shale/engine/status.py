"""``Db.status``: what an open writer tells about its state.  Nothing here waits for the store."""

from collections.abc import Mapping
from datetime import datetime

from shale.core.state_repr import ShowsState
from shale.core.ttl import Timestamp
from shale.core.units import format_size
from shale.engine.options import FlushType
from shale.engine.seq_times import seq_at, time_of
from shale.engine.status_updates import StatusSubscription, StatusUpdate
from shale.engine.write.writer import Writer
from shale.errors import ShaleError
from shale.types import Manifest


class DbStatus(ShowsState):
    """The state of one writer; every property is read anew."""

    __slots__ = ("_writer",)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def writer_epoch(self) -> int:
        """The epoch of this writer."""
        return self._writer.manifest.epoch

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that this writer knows."""
        return self._writer.manifest.current

    @property
    def manifest_id(self) -> int:
        """The version of ``manifest``."""
        return self._writer.manifest.id

    @property
    def last_seq(self) -> int:
        """The newest sequence number of a commit."""
        return self._writer.pipeline.committed_seq

    @property
    def durable_seq(self) -> int:
        """All rows up to this sequence number are durable."""
        return self._writer.durability.durable_seq

    @property
    def segments(self) -> list[bytes]:
        """The prefixes of all segments, also of rows in memory; empty in a database without segments."""
        route = self._writer.pipeline.route
        return [] if route is None else route.known

    @property
    def rows_written(self) -> int:
        """Rows that this handle has accepted, tombstones and merge operands included."""
        return self._writer.pipeline.buffers.rows_written

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes in memtables and WAL buffer; writes wait while it is at ``max_unflushed_bytes``."""
        return self._writer.pipeline.buffers.unflushed_bytes

    @property
    def is_full(self) -> bool:
        """Whether writes wait because ``unflushed_bytes`` is at its limit."""
        return self._writer.pipeline.backpressure.is_full

    @property
    def open_snapshots(self) -> int:
        """How many snapshots, transactions and scans under way hold a sequence number."""
        return len(self._writer.active)

    @property
    def oldest_snapshot_seq(self) -> int | None:
        """The lowest sequence number that is held; flushes keep what is visible at it. ``None``: none is held."""
        return self._writer.active.oldest()

    @property
    def transaction_history_bytes(self) -> int:
        """Keys kept of flushed memtables, with which open transactions may conflict."""
        return self._writer.pipeline.history.size_bytes

    @property
    def quickest_flush(self) -> FlushType:
        """The flush that makes rows durable soonest: to the WAL, if it is enabled."""
        return FlushType.WAL if self._writer.options.wal_enabled else FlushType.MEMTABLE

    @property
    def problem(self) -> ShaleError | None:
        """The error that stopped this writer, if any."""
        return self._writer.durability.problem

    def subscribe(self) -> StatusSubscription:
        """Return an async iterator of ``StatusUpdate``: the status now, then the newest one after every change."""
        return StatusSubscription(self._update, self._writer.durability.status_changed)

    async def wait_failed(self) -> ShaleError:
        """Wait until the writer fails (for instance, is fenced) or is closed, and return the error."""
        return await self._writer.durability.wait_failed()

    def seq_at(self, time: Timestamp, *, round_up: bool = False) -> int | None:
        """Return the sequence number that the database had reached at a time; points are about a minute apart.

        Args:
            time: a ``datetime`` with a time zone, or milliseconds since 1970.
            round_up: the first known point at or after the time, instead of the last one at or before it.

        Returns:
            ``None`` if there is no such point.
        """
        return seq_at(self._writer.sequence_tracker(), time, round_up=round_up)

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """Return when the database reached a sequence number, to the second; see ``seq_at``."""
        return time_of(self._writer.sequence_tracker(), seq, round_up=round_up)

    def _shown_state(self) -> Mapping[str, object]:
        return writer_state(self._writer)

    def _update(self) -> StatusUpdate:
        durability = self._writer.durability
        return StatusUpdate(
            durable_seq=durability.durable_seq,
            manifest_id=self.manifest_id,
            manifest=self.manifest,
            segments=tuple(self.segments),
            problem=durability.problem or durability.ended,
        )


def database_url(status: DbStatus) -> str:
    """Return where the database of a writer is, as one URL without credentials."""
    return status._writer.location.url


def proof_age_s(status: DbStatus) -> float:
    """Return the seconds since the last read of the manifest that showed no newer writer."""
    writer = status._writer
    return writer.env.clock.monotonic_s() - writer.manifest.proved_at_s


def writer_state(writer: Writer) -> Mapping[str, object]:
    """Return what ``repr`` of a ``Db`` shows, from memory."""
    status = DbStatus(writer)
    problem, manifest = status.problem, status.manifest
    return {
        "database": writer.location.url,
        "state": "closed" if writer.is_closed else "open" if problem is None else f"failed: {problem}",
        "epoch": status.writer_epoch,
        "last_seq": status.last_seq,
        "durable_seq": status.durable_seq,
        "unflushed": format_size(status.unflushed_bytes),
        "l0_ssts": sum(len(tree.l0) for _, tree in manifest.trees()),
        "sorted_runs": sum(len(tree.compacted) for _, tree in manifest.trees()),
        "checkpoints": len(manifest.checkpoints),
    }
