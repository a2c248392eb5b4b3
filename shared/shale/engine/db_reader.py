"""The read-only handle: a front over the parts that follow, protect and read a database."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import anyio

from shale.engine.db_cache import DbCache
from shale.engine.hot_path import HotPath
from shale.engine.lifetime import Moment
from shale.engine.opening import Opening
from shale.engine.progress import raise_again
from shale.engine.read_options import ReadOptions
from shale.engine.read_point import Durability, ReadPoint, names_sst
from shale.engine.read_view import ReadView
from shale.engine.reader_follow import Follower
from shale.engine.reader_options import ReaderMode, ReaderOptions
from shale.engine.reader_snapshot import ReaderSnapshot
from shale.engine.reader_state import ReaderState, StateBuilder
from shale.engine.reads import Reads, checked_durability
from shale.engine.seq_times import seq_at, time_of
from shale.engine.task_host import TaskHost, first_error
from shale.engine.where import Stores, Where, resolve
from shale.env import Env
from shale.errors import (
    ClosedError,
    InvalidDbState,
    InvalidRequestError,
    SegmentExtractorMismatch,
    ShaleError,
    SstMissing,
    WalTruncated,
)
from shale.format.sequence_tracker import SequenceTracker
from shale.format.transform import BlockTransformer
from shale.merge_operators import operator_of
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed, require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.protocol.wal_place import require_wal_place
from shale.protocol.wal_store import WalStore
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.read_ahead import ReadAhead
from shale.sst.reader import SstReader
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest

_TRAVELLED = (
    "a pickled reader had shown rows that were in the WAL only, and these were flushed and collected since: "
    "pickle it again after its next poll (refresh), or open the URL with a checkpoint where it is needed"
)
log = get_logger("reader")


class DbReader(Reads):
    """Reads one database, as ``open`` says: following it under a checkpoint of its own, pinned, or unprotected."""

    def __init__(self, where: Where, options: ReaderOptions, env: Env, metrics: Metrics, stores: Stores) -> None:
        """Use ``open``; this makes no request and starts nothing."""
        super().__init__(limits=options.enforce_visible_range)
        self._where = where
        self._options = options
        self._env = env
        self._stores = stores
        self._host = TaskHost("shale.reader")
        self._poll_lock = anyio.Lock()
        self._error: ShaleError | None = None
        self._hot_path = HotPath()
        self._following: Follower | None = None
        self._read_ahead: ReadAhead | None = None
        self._last_poll_ms = 0
        self._ended = anyio.Event()
        self._export(metrics)

    @classmethod
    def open(
        cls,
        where: str | None = None,
        *,
        store: str | ObjectStore | None = None,
        path: str | None = None,
        wal_store: str | ObjectStore | None = None,
        env: Env | None = None,
        metrics: Metrics | None = None,
        store_options: StoreOptions | None = None,
        block_transformer: BlockTransformer | None = None,
        options: ReaderOptions | None = None,
        **settings: Any,
    ) -> "Opening[DbReader]":
        """Open a database for reading.  Await it, or use it with ``async with``.

        Args:
            where: the database's URL; with ``store`` its path in that store.
            store: URL of a store, or a store object, which stays the caller's.
            path: the same as ``where``, for use with ``store``.
            wal_store: where the WAL lives, if not with the rest.
            env: the outside world; the real one by default.
            metrics: counts here; by default nowhere that is seen.
            store_options: how to talk to the store.
            block_transformer: what all of SSTs and WAL files goes through, such as ``AesGcm``; every process that reads
                or compacts the database needs the same.
            options: all options at once, or
            settings: single ones, see ``ReaderOptions``; durations as ``"10s"`` or ``timedelta``, sizes as ``"64MiB"``.

        Raises:
            InvalidRequestError: an impossible setting.
            LatestRecordMissing: there is no database.
            InvalidDbState: half built or destroyed.
            CheckpointMissing: ``checkpoint`` is not listed, or has expired.
            AmbiguousCheckpoint: ``checkpoint`` is a name that several have.
        """
        if options is not None and settings:
            raise InvalidRequestError(f"options and {', '.join(settings)} were given: use one or the other")
        chosen = options if options is not None else ReaderOptions.from_keywords(settings)
        location = resolve(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            store_options=store_options,
            block_transformer=block_transformer,
        )
        return Opening(cls._open, location, chosen, env, metrics)

    @classmethod
    async def _open(
        cls,
        where: Where,
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
            await reader._start(metrics, through_wal_id)
        except BaseException:
            await reader.close()
            raise
        return reader

    def snapshot(self) -> Opening[ReaderSnapshot]:
        """What is served when this is awaited or entered with ``async with``, to be read later.

        A reader that follows without a checkpoint cannot keep it: reads fail when the collector has been there.
        """
        return Opening(self._snapshot)

    async def _snapshot(self) -> ReaderSnapshot:
        await self._settled_point()
        state = self._state
        return ReaderSnapshot(state, state.pin.use(), self._clock_ms, self._limits)

    def seq_at(self, time: Moment, *, round_up: bool = False) -> int | None:
        """The sequence number that the database had reached at a time, as the manifest tells; see ``Db.seq_at``."""
        return seq_at(SequenceTracker.decode(self.manifest.sequence_tracker), time, round_up=round_up)

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """When the database had reached a sequence number, as far as the manifest tells; see ``Db.time_of``."""
        return time_of(SequenceTracker.decode(self.manifest.sequence_tracker), seq, round_up=round_up)

    async def refresh(self) -> None:
        """Look for newer data now instead of at the next poll."""
        self._check_open()
        await self._poll()

    async def close(self) -> None:
        """Stop following and remove the checkpoint; scans that are under way fail.  A second call does nothing."""
        if isinstance(self._error, ClosedError):
            return
        self._error = ClosedError("the reader is closed")
        self._ended.set()
        if self._read_ahead is not None:
            self._read_ahead.close()
        self._wait_for_disk()
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
        """The manifest that is served."""
        return self._state.manifest.value

    @property
    def manifest_id(self) -> int:
        """Its version."""
        return self._state.manifest.id

    @property
    def checkpoint_id(self) -> UUID | None:
        """What protects the state that is served; ``None`` for a reader that follows without protection."""
        return self._state.pin.checkpoint_id

    @property
    def visible_seq(self) -> int:
        """The newest sequence number that reads can see."""
        return self._state.visible_seq

    @property
    def memtable_count(self) -> int:
        """Tables of rows that are in the WAL only."""
        return len(self._state.tables.replayed)

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._settled_point)

    @property
    def problem(self) -> ShaleError | None:
        """Why this reader serves no more; ``None`` while it does."""
        return self._error

    async def failed(self) -> ShaleError:
        """Wait until the reader has failed (for instance: lost its lease), or was closed, and return why."""
        await self._ended.wait()
        assert self._error is not None
        return self._error

    @property
    def last_poll_ms(self) -> int:
        """When it last knew the newest state, in milliseconds since 1970."""
        return self._last_poll_ms

    def __reduce__(self) -> tuple[Any, ...]:
        """As an opening of what is served now: a managed reader becomes one that is pinned to its checkpoint.

        What it has read of the WAL is read again there.  No checkpoint protects files that are newer than itself: where
        they were collected meanwhile, opening raises ``WalTruncated``.

        Raises:
            TypeError: a store was given as an object, which cannot be reached from elsewhere.
        """
        if not isinstance(self._where.store, str) or not isinstance(self._where.wal_store, str | None):
            raise TypeError("only a reader that was opened by URL can be pickled")
        options = replace(self._options, cache=None)
        consumed_wal_id = None
        if self.checkpoint_id is not None:
            options = replace(options, checkpoint=self.checkpoint_id)
            consumed_wal_id = self._state.tables.consumed_wal_id
        return Opening, (_reopen, self._where, options, consumed_wal_id)

    @property
    def _follower(self) -> Follower:
        assert self._following is not None, "not open"
        return self._following

    @property
    def _state(self) -> ReaderState:
        return self._follower.state

    def _check_open(self) -> None:
        if self._error is not None:
            raise_again(self._error)

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._error is not None:
            raise_again(self._error)
        if durability != "memory":
            checked_durability(durability)  # all that a reader sees is durable
        return self._follower.state.point

    async def _settled_point(self, durability: Durability = "durable") -> ReadPoint:
        self._read_point(durability)
        return (await self._follower.settled_state()).point

    def _scan_point(self, durability: Durability) -> ReadPoint:
        """The newest state at the time of the first row."""
        return replace(self._read_point(durability), settle=self._settled_point)

    def _clock_ms(self) -> int:
        return self._env.clock.now_ms()

    async def _start(self, metrics: Metrics, through_wal_id: int | None) -> None:
        options, env, root = self._options, self._env, self._where.root
        store = self._stores.main
        protocol = ProtocolOptions(component="reader", probe_max_staleness_s=options.probe_max_staleness_s)
        manifests = ManifestStore(store, root, env, metrics, protocol)
        await require_not_destroyed(store, root)
        stored = await manifests.load()
        _check(stored.value, self._where, options)
        tasks = await self._host.start(self._on_failure)
        self._read_ahead = ReadAhead(tasks)
        read_options = ReadOptions(
            merge_operator=operator_of(options.merge_operator),
            read_ahead_bytes=options.read_ahead_bytes,
            read_ahead=self._read_ahead,
            hot_path=self._hot_path,
        )
        paths = SstPaths.of(root, stored.value)
        cache = PROCESS_CACHE.memory(options.block_cache_bytes, options.cache)
        disk = PROCESS_CACHE.disk(options.disk_cache, env.clock)
        transformer = self._where.block_transformer
        reader = SstReader(
            store,
            paths,
            cache,
            env,
            metrics,
            filter_policies=options.filter_policies,
            disk=disk,
            transformer=transformer,
        )
        reader.write_behind(tasks)
        wal = WalStore(self._stores.wal or store, root, env, transformer=transformer)
        builder = StateBuilder(
            wal,
            reader,
            env,
            read_options,
            max_table_bytes=options.max_memtable_bytes,
            keeper=Latest(self) if options.mode is ReaderMode.FOLLOW_LATEST else None,
        )
        self._following = Follower(manifests, stored, builder, options, env=env, metrics=metrics)
        await self._following.open(through_wal_id)
        self._last_poll_ms = env.clock.now_ms()
        tasks.start_soon(self._hot_path.run, env, name="reader.hot_path")
        if options.mode is not ReaderMode.CHECKPOINT:
            tasks.start_soon(self._keep_up, name="reader.poll")
        log.info(Event.DB_OPENED, path=root, mode=options.mode.value, manifest_id=self.manifest_id)

    async def _keep_up(self) -> None:
        """Poll until closed, or until nothing could be confirmed for as long as the lease lives."""
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
                if left_s is not None and left_s <= 0:
                    self._on_failure(error)
                    return

    async def _poll(self) -> None:
        async with self._poll_lock:
            self._check_open()
            destroyed = await is_destroyed(self._stores.main, self._where.root)
            await self._follower.poll(destroyed=destroyed)
            self._last_poll_ms = self._env.clock.now_ms()

    def _on_failure(self, error: BaseException) -> None:
        """Serve no more: what is at hand may have been collected."""
        if self._error is None:
            self._error = error if isinstance(error, ShaleError) else ShaleError(f"the reader failed: {error!r}")
            self._ended.set()
        self._wait_for_disk()
        if self._following is not None:
            self._following.fail(self._error)

    def _wait_for_disk(self) -> None:
        """The tasks are ending: nothing is written behind the back of who reads any more."""
        if self._following is not None and self._following.is_open:
            self._state.view.reader.write_behind(None)

    def _export(self, metrics: Metrics) -> None:
        requests = {op: metrics.counter("slatedb_db_requests_total", op=op) for op in ("get", "scan")}
        visible = metrics.gauge("slatedb_reader_visible_timestamp_seconds")
        memtable = metrics.gauge("slatedb_reader_memtable_bytes")
        exported = {"get": 0, "scan": 0}

        def refresh() -> None:
            for op, count in (("get", self.gets), ("scan", self.scans)):
                requests[op].inc(count - exported[op])
                exported[op] = count
            visible.set(self._last_poll_ms / 1000)
            if self._following is not None and self._following.is_open:
                memtable.set(self._state.tables.size_bytes)

        metrics.before_scrape(refresh)


class Latest:
    """Where a reader without protection finds what replaces an SST that is gone; see ``Keeper``."""

    def __init__(self, reader: DbReader) -> None:
        self._reader = reader

    def hold(self, seq: int) -> None:
        """Nothing keeps old versions."""

    def newest(self) -> ReadView:
        """The view of the newest manifest."""
        return self._reader._state.view

    async def renew(self, gone: SstMissing) -> None:
        """Read the newest manifest."""
        if names_sst(self._reader.manifest, gone.id):
            await self._reader.refresh()
            if names_sst(self._reader.manifest, gone.id):
                raise gone


async def _reopen(where: Where, options: ReaderOptions, through_wal_id: int | None) -> DbReader:
    """What an unpickled opening does.

    Raises:
        WalTruncated: rows that the original showed are not in the WAL any more.
    """
    try:
        return await DbReader._open(where, options, through_wal_id=through_wal_id)
    except WalTruncated as gone:
        raise WalTruncated(gone.id, _TRAVELLED) from gone


def _check(manifest: Manifest, where: Where, options: ReaderOptions) -> None:
    root = where.root
    if not manifest.initialized:
        raise InvalidDbState(f"the database at {root or '/'} is not initialised: a clone that was not completed")
    require_wal_place(manifest, root, is_named=where.wal_store is not None or options.skip_wal_replay)
    extractor = options.segment_extractor
    if extractor is not None and extractor.name != manifest.segment_extractor_name:
        raise SegmentExtractorMismatch(
            f"the database at {root or '/'} is segmented by {manifest.segment_extractor_name!r}, not {extractor.name!r}"
        )
