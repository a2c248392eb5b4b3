"""``shale.sync.DbReader``: the read-only handle; its calls block."""

from typing import Any, Self
from uuid import UUID

from shale.concurrency.blocking import BlockingOpen, blocking, in_loop
from shale.core.async_use import MadeByOpen
from shale.engine import db_reader
from shale.engine.open_context import OpenContext
from shale.errors import ShaleError
from shale.protocol.wal_completeness import WalGap
from shale.sync.db_cache import DbCache
from shale.sync.loop_thread import LoopThread, loop_thread
from shale.sync.reads import BlockingReads
from shale.sync.snapshot import Snapshot
from shale.sync.status import StatusSubscription
from shale.types import Manifest


class DbReader(MadeByOpen, BlockingReads[db_reader.DbReader]):
    """Reads one database; see ``shale.DbReader``.  Made by ``open``, and open until ``close``.

    It pickles like the asynchronous reader, and is opened where it is unpickled.
    """

    open = BlockingOpen(db_reader.DbReader.open)

    @classmethod
    def _open(cls, opening: OpenContext[db_reader.DbReader]) -> Self:
        loop = loop_thread()
        return cls(loop.call(opening.opened(), undo=db_reader.DbReader.close), loop)

    def __init__(self, inner: db_reader.DbReader, loop: LoopThread) -> None:
        super().__init__(inner, loop)
        loop.close_at_exit(inner, inner.close)

    @property
    def manifest(self) -> Manifest:
        """The manifest that is served."""
        return self._inner.manifest

    @property
    def manifest_id(self) -> int:
        """The version of ``manifest``."""
        return self._inner.manifest_id

    @property
    def checkpoint_id(self) -> UUID | None:
        """The checkpoint of the state that is served; ``None`` for a reader that follows without protection."""
        return self._inner.checkpoint_id

    @property
    def visible_seq(self) -> int:
        """The newest sequence number that reads can see."""
        return self._inner.visible_seq

    @property
    def memtable_count(self) -> int:
        """The number of tables of rows replayed from the WAL."""
        return self._inner.memtable_count

    @property
    def replayed_bytes(self) -> int:
        """The estimated memory of all tables of replayed rows, with those that only snapshots and scans still read."""
        return self._inner.replayed_bytes

    @property
    def wal_gaps(self) -> tuple[WalGap, ...]:
        """The ranges of lost WAL files whose rows are left out (``allow_wal_gap``)."""
        return self._inner.wal_gaps

    @property
    def problem(self) -> ShaleError | None:
        """The error that stopped this reader, if any."""
        return self._inner.problem

    @property
    def last_poll_ms(self) -> int:
        """When it last knew the newest state, in milliseconds since 1970."""
        return self._inner.last_poll_ms

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._inner.cache, self._run)

    def subscribe(self) -> StatusSubscription:
        """Return an iterator of ``StatusUpdate``: the status now, then the newest one after every change."""
        return StatusSubscription(self._inner.subscribe(), self._run)

    def snapshot(self) -> Snapshot:
        """Return the current state as a snapshot; see ``shale.DbReader.snapshot``."""
        return Snapshot(self._run(self._inner.snapshot().opened()), self._loop)

    failed = blocking(db_reader.DbReader.failed)
    seq_at = in_loop(db_reader.DbReader.seq_at)
    time_of = in_loop(db_reader.DbReader.time_of)
    refresh = blocking(db_reader.DbReader.refresh)

    def close(self) -> None:
        """Stop following and remove the checkpoint.  A second call does nothing."""
        if not self._loop.is_over:
            self._loop.unregister(self._inner)
            self._run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        _, opening = self._inner.__reduce__()
        return type(self)._open, (OpenContext(*opening),)
