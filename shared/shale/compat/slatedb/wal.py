"""The WAL reader: the rows of WAL files in order, as they are written."""

import asyncio
from collections import deque

import anyio

from shale.compat.slatedb.errors import invalid, raises_slatedb_errors, slatedb_errors
from shale.compat.slatedb.handles import Handle, unsigned
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.types.enums import RowEntryKind
from shale.compat.slatedb.types.options import SlateDbWalReaderOptions
from shale.compat.slatedb.types.records import RowEntry, WalRows
from shale.engine.wal.replay import PRELOAD_FILES, wal_rows
from shale.env import Env
from shale.errors import CorruptionError, WalTruncated
from shale.kernels.rows import Rows, entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.wal_store import WalStore
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.telemetry.metrics import Metrics
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry

POLL_INTERVAL_S = 0.1
"""Interval between checks for the next file."""


class SlateDbWalIterator(Handle):
    """Yields one WAL file after the other, and waits for the next one at the end.

    Where several files are there, they are read at the same time, as far as the options of the reader allow it.
    """

    __slots__ = (
        "_env",
        "_last_id",
        "_last_seq",
        "_lock",
        "_manifests",
        "_most_bytes",
        "_next_id",
        "_options",
        "_ready",
        "_wal",
    )

    _manifests: ManifestStore
    _wal: WalStore
    _env: Env
    _options: SlateDbWalReaderOptions
    _next_id: int
    _last_seq: int
    _last_id: int
    """A file that is known to exist, with all before it."""
    _ready: deque[Rows]
    """The rows of the next files."""
    _most_bytes: int
    """The size of the largest file so far."""
    _lock: asyncio.Lock

    @raises_slatedb_errors
    async def next(self) -> WalRows | None:
        """Return the rows of the next file, none of a fence.

        Raises:
            Error: the file is damaged, or missing although later ones exist; or there is no database.
        """
        async with self._lock:
            wal_id = self._next_id
            if not self._ready:
                if wal_id > self._last_id:
                    await self._wait_for(wal_id)
                await self._read(wal_id)
            rows = self._ready.popleft()
            self._next_id = wal_id + 1
            if len(rows):
                self._last_seq = int(rows.seq[-1])
            return WalRows(rows=[_row(entry) for entry in entries_from_rows(rows)], last_consumed_wal_file_id=wal_id)

    async def _wait_for(self, wal_id: int) -> None:
        """Wait until a file exists, and find out how many follow it."""
        if not await self._wal.exists(wal_id):
            await self._manifests.read_latest()
        while not await self._wal.exists(wal_id):
            if await self._wal.exists(wal_id + 1) and not await self._wal.exists(wal_id):
                raise WalTruncated(wal_id)
            await anyio.sleep(POLL_INTERVAL_S)
        self._last_id = wal_id
        # At the end of the WAL one request answers it.
        if self._options.max_fetch_tasks > 1 and await self._wal.exists(wal_id + 1):
            has_gaps = (await self._manifests.read_latest()).value.has_parallel_wal
            self._last_id = max(wal_id, await self._wal.last_seen_wal_id(wal_id, has_gaps=has_gaps))

    async def _read(self, wal_id: int) -> None:
        """Read a file, and those after it that may be read at the same time."""
        options = self._options
        files_max = min(options.max_fetch_tasks, PRELOAD_FILES, options.max_buffered_bytes // (self._most_bytes or 1))
        last_id = min(self._last_id, wal_id + max(files_max, 1) - 1)
        try:
            async for _, rows in wal_rows(self._wal, wal_id, last_id, self._env, last_seq=self._last_seq):
                if rows is None:
                    break
                self._ready.append(rows)
                self._most_bytes = max(self._most_bytes, rows.size_bytes)
        except CorruptionError:
            if not self._ready:
                raise  # otherwise it is raised when the files before it were taken
        if not self._ready:
            raise WalTruncated(wal_id)


class SlateDbWalReader:
    """Reads the WAL of a database without opening it."""

    __slots__ = ("_env", "_manifests", "_options", "_wal")

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        if not isinstance(path, str):
            raise TypeError(f"argument must be str, not {type(path).__name__}")
        self._env, metrics = Env.system(), Metrics()
        self._options = SlateDbWalReaderOptions()
        with slatedb_errors():
            root = normalize_path(path)
            store = connect(adapter_of(object_store), self._env, metrics, component="reader")
            self._wal = WalStore(store, root)
            self._manifests = ManifestStore(store, root, self._env, metrics, ProtocolOptions(component="reader"))

    @classmethod
    def with_options(cls, path: str, object_store: ObjectStore, options: SlateDbWalReaderOptions) -> "SlateDbWalReader":
        """Return a reader with limits on read-ahead.

        Up to ``max_fetch_tasks`` files are read at the same time, each in one request, as far as ``max_buffered_bytes``
        probably allows it; ``read_ahead_bytes`` has no effect.

        Raises:
            Error: a limit is 0.
        """
        _check(options)
        reader = cls(path, object_store)
        reader._options = options
        return reader

    @classmethod
    def with_wal_object_store(
        cls, path: str, object_store: ObjectStore, wal_object_store: ObjectStore
    ) -> "SlateDbWalReader":
        """Return a reader of a database whose WAL is in another store."""
        reader = cls(path, object_store)
        reader._wal = cls(path, wal_object_store)._wal
        return reader

    @classmethod
    def with_wal_object_store_and_options(
        cls, path: str, object_store: ObjectStore, wal_object_store: ObjectStore, options: SlateDbWalReaderOptions
    ) -> "SlateDbWalReader":
        """Return a reader with another store for the WAL, and limits; see ``with_options``."""
        _check(options)
        reader = cls.with_wal_object_store(path, object_store, wal_object_store)
        reader._options = options
        return reader

    @raises_slatedb_errors
    async def last_wal_file_id(self, replay_after_wal_id: int) -> int:
        """Return the last file of the gapless sequence after a file; that file if there is none.

        Raises:
            Error: there is no database.
        """
        after_id = unsigned(replay_after_wal_id, "u64", 64)
        latest = await self._manifests.read_latest()
        if not await self._wal.exists(after_id + 1):  # a search would find files after a missing one
            return after_id
        return await self._wal.last_seen_wal_id(after_id, has_gaps=latest.value.has_parallel_wal)

    @raises_slatedb_errors
    async def iterator(self, start_wal_file_id: int) -> SlateDbWalIterator:
        """Return an iterator that begins with this file."""
        iterator = SlateDbWalIterator._blank_here()
        iterator._wal, iterator._env, iterator._manifests = self._wal, self._env, self._manifests
        iterator._next_id, iterator._last_seq = unsigned(start_wal_file_id, "u64", 64), 0
        iterator._last_id = iterator._most_bytes = 0
        iterator._options, iterator._ready, iterator._lock = self._options, deque(), asyncio.Lock()
        return iterator


def _check(options: SlateDbWalReaderOptions) -> None:
    for name in ("max_buffered_bytes", "max_fetch_tasks", "read_ahead_bytes"):
        if getattr(options, name) == 0:
            raise invalid(f"{name} must be greater than zero")


def _row(entry: Entry) -> RowEntry:
    kind = RowEntryKind.VALUE
    if entry.is_tombstone:
        kind = RowEntryKind.TOMBSTONE
    elif entry.is_merge:
        kind = RowEntryKind.MERGE
    return RowEntry(
        kind=kind,
        key=entry.key,
        value=None if entry.is_tombstone else entry.value,
        seq=entry.seq,
        create_ts=entry.create_ts if entry.flags & FLAG_CREATE_TS else None,
        expire_ts=entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None,
    )
