"""The read-only handle of a database; ``shale.engine.reader`` has its parts."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import anyio

from shale.concurrency.background_tasks import BackgroundTasks
from shale.concurrency.first_error import first_error
from shale.concurrency.read_ahead import ReadAhead
from shale.concurrency.signal import Signal
from shale.concurrency.task_host import TaskHost
from shale.core.async_use import MadeByOpen
from shale.core.lazy_names import import_at_call
from shale.core.ttl import Timestamp
from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.open_context import OpenContext
from shale.engine.open_options import OpenArguments, ReaderOpenOptions, choose_options
from shale.engine.opening import opening
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.read_point import Durability, ReadPoint
from shale.engine.read.reads import Reads, checked_durability
from shale.engine.reader.follower import Follower
from shale.engine.reader.instruments import export_reader, reader_state
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.engine.reader.snapshot import ReaderSnapshot
from shale.engine.reader.state import LatestViewProvider, ReaderState, ReaderStateBuilder, require_readable
from shale.engine.reader.tables import PICKLED_READER_WAL_GONE
from shale.engine.reader.wal_replay import WalReplay
from shale.engine.seq_times import seq_at, time_of
from shale.engine.status_updates import StatusSubscription
from shale.engine.write.durability import reraise
from shale.env import Env
from shale.errors import ClosedError, ShaleError, WalTruncated
from shale.format.sequence_tracker import SequenceTracker
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed
from shale.protocol.visible_range import require_usable
from shale.protocol.wal_completeness import WalGap
from shale.protocol.wal_store import WalStore
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.reader import SstReader
from shale.store.location import Location, UrlOrPath
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest

if TYPE_CHECKING:
    from shale.engine.db_cache import DbCache
    from shale.engine.preload import preload_disk_cache
    from shale.merge_operators import resolve_operator
else:
    DbCache, preload_disk_cache, resolve_operator = import_at_call(
        globals(),
        DbCache="shale.engine.db_cache",
        preload_disk_cache="shale.engine.preload",
        resolve_operator="shale.merge_operators",
    )

log = get_logger("reader")


class DbReader(MadeByOpen, Reads):
    """Reads one database: it follows under a checkpoint of its own, stays at a checkpoint, or follows unprotected."""

    def __init__(
        self, where: DatabaseLocation, options: ReaderOptions, env: Env, metrics: Metrics, stores: DatabaseStores
    ) -> None:
        """Make no request and start no task; use ``open``."""
        super().__init__(visible_range=options.enforce_visible_range)
        self._where = where
        self._options = options
        self._env = env
        self._stores = stores
        self._host = TaskHost("shale.reader")
        self._background = BackgroundTasks()
        self._poll_lock = anyio.Lock()
        self._error: ShaleError | None = None
        self._following: Follower | None = None
        self._wal_replay: WalReplay | None = None
        self._read_ahead: ReadAhead | None = None
        self._last_poll_ms = 0
        self._ended = anyio.Event()
        self._changed = Signal()
        export_reader(metrics, options, lambda: (self.gets, self.scans, self._last_poll_ms, self._open_state))

    @classmethod
    def open(
        cls,
        where: UrlOrPath | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        options: ReaderOptions | None = None,
        **keywords: Unpack[ReaderOpenOptions],
    ) -> "OpenContext[DbReader]":
        """Open a database for reading.  Await it, or use it with ``async with``.

        Args:
            where: URL of the database; with ``store`` its path in that store.
            store: URL of a store, or a store object, which the caller closes.
            path: the path in ``store``, instead of ``where``.
            options: all options of the reader in one value, instead of single ones.
            keywords: single options, see ``ReaderOpenOptions``: ``wal_store``, ``env``, ``metrics``, ``store_options``,
                ``block_transformer``, and those of ``ReaderOptions``, with durations as ``"250ms"`` or ``timedelta``,
                sizes as ``"64MiB"``.

        Raises:
            UnknownOption: there is no option of that name; this is a ``TypeError``, too.
            InvalidRequestError: an impossible setting.
            LatestRecordMissing: there is no database.
            InvalidDbState: the database is half built or destroyed, or its WAL is in another store.
            WalTruncated: a WAL file that replay needs is lost, and ``allow_wal_gap`` is off.
            CheckpointMissing: ``checkpoint`` is not listed, or has expired.
            AmbiguousCheckpoint: several checkpoints have the name ``checkpoint``.
        """
        chosen = choose_options(ReaderOptions, options, keywords)
        location, env, metrics = OpenArguments.of(where, store, path, keywords)
        return OpenContext(cls._open, location, chosen, env, metrics)

    @classmethod
    async def _open(
        cls,
        where: DatabaseLocation,
        options: ReaderOptions,
        env: Env | None = None,
        metrics: Metrics | None = None,
        *,
        through_wal_id: int | None = None,
    ) -> "DbReader":
        env = env if env is not None else Env.system()
        metrics = metrics if metrics is not None else Metrics()
        stores = where.connect(env, metrics, component="reader")
        reader = cls(where, options, env, metrics, stores)
        try:
            async with opening(where, stores):
                await reader._start(metrics, through_wal_id)
        except BaseException:
            await reader.close()
            raise
        return reader

    def snapshot(self) -> OpenContext[ReaderSnapshot]:
        """Return the current state as a snapshot.  Await it, or use it with ``async with``.

        A reader that follows without a checkpoint cannot protect it: reads fail once GC has deleted its SSTs.
        """
        return OpenContext(self._snapshot)

    async def _snapshot(self) -> ReaderSnapshot:
        await self._resolve_point()
        state = self._state
        return ReaderSnapshot(state, state.pin.acquire(), self._clock_ms, self._visible_range)

    def seq_at(self, time: Timestamp, *, round_up: bool = False) -> int | None:
        """Return the sequence number the database had reached at a time; see ``DbStatus.seq_at``."""
        return seq_at(SequenceTracker.decode(self.manifest.sequence_tracker), time, round_up=round_up)

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """Return the time at which the database had reached a sequence number; see ``DbStatus.time_of``."""
        return time_of(SequenceTracker.decode(self.manifest.sequence_tracker), seq, round_up=round_up)

    async def refresh(self) -> None:
        """Poll for newer data now."""
        self._check_open()
        await self._poll()

    async def close(self) -> None:
        """Stop following and remove the checkpoint; scans under way fail.  May be called again."""
        if isinstance(self._error, ClosedError):
            return
        self._error = ClosedError("the reader is closed: open another one")
        self._ended.set()
        self._changed.notify()
        if self._read_ahead is not None:
            self._read_ahead.close()
        self._background.close()
        await self._host.stop()
        try:
            if self._following is not None:
                await self._following.close(self._error)
        finally:
            if self._following is not None and self._following.is_open:
                self._state.view.reader.close()
            await self._stores.aclose()
        log.info(Event.DB_CLOSED, path=self._where.root)

    @property
    def manifest(self) -> Manifest:
        """The manifest that reads see."""
        return self._state.manifest.value

    @property
    def manifest_id(self) -> int:
        """The version of that manifest."""
        return self._state.manifest.id

    @property
    def checkpoint_id(self) -> UUID | None:
        """The checkpoint that protects the state; ``None`` for a reader that follows without one."""
        return self._state.pin.checkpoint_id

    @property
    def visible_seq(self) -> int:
        """The newest sequence number that reads can see."""
        return self._state.visible_seq

    @property
    def memtable_count(self) -> int:
        """The number of tables of rows replayed from the WAL."""
        return len(self._state.tables.replayed)

    @property
    def replayed_bytes(self) -> int:
        """The estimated memory of all tables of replayed rows, with those that only snapshots and scans still read."""
        return self._follower.replayed_bytes

    @property
    def wal_gaps(self) -> tuple[WalGap, ...]:
        """The ranges of lost WAL files whose rows are left out (``allow_wal_gap``)."""
        return self._wal_replay.left_out if self._wal_replay is not None else ()

    @property
    def cache(self) -> "DbCache":
        """The caches of its SSTs in memory and on disk, to warm and to evict."""
        return DbCache(self._resolve_point)

    @property
    def problem(self) -> ShaleError | None:
        """The error that stopped this reader, if any."""
        return self._error

    def subscribe(self) -> StatusSubscription:
        """Return an async iterator of ``StatusUpdate``: the status now, then the newest one after every change."""
        return StatusSubscription(lambda: self._state.status(self._error), self._changed)

    async def failed(self) -> ShaleError:
        """Wait until the reader has failed, for instance lost its lease, or was closed; return the error."""
        await self._ended.wait()
        assert self._error is not None
        return self._error

    @property
    def last_poll_ms(self) -> int:
        """The time of the last successful poll, in milliseconds since 1970."""
        return self._last_poll_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as an opening of the current state: a managed reader becomes one that stays at its checkpoint.

        The copy replays the same WAL files.  A checkpoint does not protect WAL files newer than itself: if GC has
        deleted one of them meanwhile, opening the copy raises ``WalTruncated``.

        Raises:
            TypeError: the reader was opened with a store object, which another process cannot reach.
        """
        if not isinstance(self._where.store, str) or not isinstance(self._where.wal_store, str | None):
            raise TypeError("only a reader that was opened by URL can be pickled")
        options = replace(self._options, cache=None)
        consumed_wal_id = None
        if self.checkpoint_id is not None:
            options = replace(options, checkpoint=self.checkpoint_id)
            consumed_wal_id = self._state.tables.consumed_wal_id
        return OpenContext, (_reopen, self._where, options, consumed_wal_id)

    @property
    def _follower(self) -> Follower:
        assert self._following is not None, "not open"
        return self._following

    @property
    def _state(self) -> ReaderState:
        return self._follower.state

    def _check_open(self) -> None:
        if self._error is not None:
            reraise(self._error)

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._error is not None:
            reraise(self._error)
        if durability != "memory":
            checked_durability(durability)  # every row that a reader sees is durable
        return self._follower.state.point

    async def _resolve_point(self, durability: Durability = "durable") -> ReadPoint:
        self._read_point(durability)
        return (await self._follower.protected_state()).point

    def _scan_point(self, durability: Durability) -> ReadPoint:
        """Return a point that resolves to the newest state at the first row."""
        return self._read_point(durability)._replace(resolve=self._resolve_point)

    @property
    def _open_state(self) -> ReaderState | None:
        return self._state if self._following is not None and self._following.is_open else None

    def _shown_state(self) -> Mapping[str, object]:
        place = Location(self._stores.main.url, self._where.root).url
        return reader_state(place, self._options.mode, self._open_state, self._error)

    def _clock_ms(self) -> int:
        return self._env.clock.now_ms()

    async def _start(self, metrics: Metrics, through_wal_id: int | None) -> None:
        options, env, root = self._options, self._env, self._where.root
        store = self._stores.main
        protocol = options.protocol(self._stores.manifest_write_version)
        manifests = ManifestStore(store, root, env, metrics, protocol)
        self._visible_range = await require_usable(store, root, options.enforce_visible_range)
        stored = await manifests.load()
        require_readable(stored.value, self._where, store.url, options)
        tasks = await self._host.start(self._on_failure)
        self._background.open(tasks)
        self._read_ahead = ReadAhead(tasks)
        read_options = ReadOptions(
            merge_operator=None if options.merge_operator is None else resolve_operator(options.merge_operator),
            read_ahead_bytes=options.read_ahead_bytes,
            read_ahead=self._read_ahead,
        )
        transformer = self._where.block_transformer
        reader = SstReader(
            store,
            SstPaths.of(root, stored.value),
            PROCESS_CACHE.memory(options.block_cache_bytes, options.cache),
            env,
            metrics,
            filter_policies=options.filter_policies,
            disk=PROCESS_CACHE.disk(options.disk_cache, env.clock),
            transformer=transformer,
            background=self._background,
        )
        wal = WalStore(self._stores.wal or store, root, transformer=transformer)
        latest = LatestViewProvider(lambda: self._state, self.refresh)
        provider = latest if options.mode is ReaderMode.FOLLOW_LATEST else None
        builder = ReaderStateBuilder(reader, read_options, view_provider=provider)
        self._wal_replay = replay = WalReplay(wal, manifests, env, options, has_gaps=stored.value.has_parallel_wal)
        self._following = Follower(manifests, stored, builder, replay, options, env=env, metrics=metrics)
        await self._following.open(through_wal_id)
        self._last_poll_ms = env.clock.now_ms()
        if (disk := PROCESS_CACHE.preloading(options.disk_cache)) is not None:
            await preload_disk_cache(store, reader, self.manifest, disk)
        if options.mode is not ReaderMode.CHECKPOINT:
            tasks.start_soon(self._poll_loop, name="reader.poll")
        log.info(Event.DB_OPENED, path=root, mode=options.mode.value, manifest_id=self.manifest_id)

    async def _poll_loop(self) -> None:
        """Poll until the reader is closed, a WAL file is lost, or polls have failed for a lifetime of the lease."""
        while True:
            await anyio.sleep(self._options.manifest_poll_interval_s)
            try:
                await self._poll()
            except (ShaleError, ExceptionGroup) as raised:
                error = first_error(raised)
                if not isinstance(error, ShaleError):
                    raise
                expire_ms = self._follower.expire_ms
                left_s = None if expire_ms is None else (expire_ms - self._env.clock.now_ms()) / 1000
                log.warning(Event.READER_POLL_FAILED, error=error, lease_left_s=left_s)
                # A lost WAL file stays lost, and the reader would serve an old state for ever.
                if isinstance(error, WalTruncated) or (left_s is not None and left_s <= 0):
                    self._on_failure(error)
                    return

    async def _poll(self) -> None:
        async with self._poll_lock:
            self._check_open()
            destroyed = await is_destroyed(self._stores.main, self._where.root)
            await self._follower.poll(destroyed=destroyed)
            self._last_poll_ms = self._env.clock.now_ms()
            self._changed.notify()

    def _on_failure(self, error: BaseException) -> None:
        """Fail all reads from now on: GC may have deleted the SSTs."""
        if self._error is None:
            self._error = error if isinstance(error, ShaleError) else ShaleError(f"the reader failed: {error!r}")
            self._ended.set()
            self._changed.notify()
        self._background.close()
        if self._following is not None:
            self._following.fail(self._error)


async def _reopen(where: DatabaseLocation, options: ReaderOptions, through_wal_id: int | None) -> DbReader:
    """Open the copy of a pickled reader.

    Raises:
        WalTruncated: the WAL no longer has rows that the original showed.
    """
    try:
        return await DbReader._open(where, options, through_wal_id=through_wal_id)
    except WalTruncated as gone:
        raise WalTruncated(gone.id, PICKLED_READER_WAL_GONE) from gone
