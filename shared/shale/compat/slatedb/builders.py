"""``DbBuilder`` and ``DbReaderBuilder``."""

import logging
from typing import Any

from shale.compat.slatedb.caching import DbCache, FilterPolicy, budget_of, policy_of
from shale.compat.slatedb.callbacks import MergeOperator, NamedExtractor, PrefixExtractor, engine_operator
from shale.compat.slatedb.db import Db, db_of
from shale.compat.slatedb.embedded import EmbeddedContext, EmbeddedTasks, embedded_tasks
from shale.compat.slatedb.errors import Invalid, raises_slatedb_errors, slatedb_errors
from shale.compat.slatedb.handles import SingleUse, parse_checkpoint_id
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.compat.slatedb.metrics.recorder import MetricsRecorder
from shale.compat.slatedb.reader import DbReader, reader_of
from shale.compat.slatedb.settings.options import db_options, store_options
from shale.compat.slatedb.settings.settings import Settings
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.types.enums import ReaderMode, SstBlockSize
from shale.compat.slatedb.types.options import ReaderOptions
from shale.engine import db as engine_db
from shale.engine import db_reader
from shale.engine.reader import options as engine_reader
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.store.options import RetryPolicy, StoreOptions
from shale.telemetry.metrics import Metrics

log = logging.getLogger("shale.compat.slatedb")


class _Builder(SingleUse):
    """The options that writers and readers share."""

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        super().__init__()
        if not isinstance(path, str):
            raise TypeError(f"argument must be str, not {type(path).__name__}")
        self._path = path
        self._store = adapter_of(object_store)
        self._wal_store: ObjectStore | None = None
        self._recorder: MetricsRecorder | None = None
        self._engine: dict[str, Any] = {}

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """Set the store of the WAL, if it is another one."""
        self._require_unused()
        self._wal_store = wal_object_store

    def with_db_cache(self, db_cache: DbCache, db_cache_id: int) -> None:
        """Set a cache that several databases share; the id has no meaning, because SSTs identify blocks."""
        self._require_unused()
        self._engine.pop("block_cache_bytes", None)
        self._engine["cache"] = budget_of(db_cache)

    def with_db_cache_disabled(self) -> None:
        """Cache no blocks."""
        self._require_unused()
        self._engine.pop("cache", None)
        self._engine["block_cache_bytes"] = 0

    def with_merge_operator(self, merge_operator: MergeOperator) -> None:
        """Set the merge operator."""
        self._require_unused()
        self._engine["merge_operator"] = engine_operator(merge_operator)

    def with_metrics_recorder(self, metrics_recorder: MetricsRecorder) -> None:
        """Set the recorder of metrics."""
        self._require_unused()
        self._recorder = metrics_recorder

    def with_filter_policies(self, policies: list[FilterPolicy]) -> None:
        """Set the filters of SSTs."""
        self._require_unused()
        self._engine["filter_policies"] = tuple(policy_of(policy) for policy in policies)

    def with_segment_extractor(self, extractor: PrefixExtractor) -> None:
        """Set the extractor of a key's segment."""
        self._require_unused()
        self._engine["segment_extractor"] = NamedExtractor.of(extractor)

    @property
    def _wal_adapter(self) -> Any:
        return None if self._wal_store is None else adapter_of(self._wal_store)


class DbBuilder(_Builder):
    """Opens a database for writing, once."""

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        super().__init__(path, object_store)
        self._settings = Settings.default()

    def with_settings(self, settings: Settings) -> None:
        """Set all settings, as they are now."""
        self._require_unused()
        self._settings = settings._copy()

    def with_seed(self, seed: int) -> None:
        """Do nothing: random draws are not visible to programs here."""
        self._require_unused()

    def with_sst_block_size(self, sst_block_size: SstBlockSize) -> None:
        """Set the size of data blocks."""
        self._require_unused()
        self._engine["block_size_bytes"] = 1024 << sst_block_size.value

    @raises_slatedb_errors
    async def build(self) -> Db:
        """Open the database, creating it if there is none.

        Raises:
            Error: invalid settings, or the database cannot be opened; the builder cannot be used again.
        """
        self._use()
        values = self._settings._values
        try:
            options = db_options(values, **self._engine)
        except InvalidRequestError as error:
            raise Invalid(f"Invalid error: invalid configuration: {error}") from error
        env, metrics = Env.system(), Metrics()
        log.info("opening SlateDB database [path=%s]", self._path)
        db = await engine_db.Db.open(
            store=self._store,
            path=self._path,
            wal_store=self._wal_adapter,
            env=env,
            metrics=metrics,
            store_options=store_options(values),
            options=options,
        )
        place = EmbeddedContext(
            store=connect(self._store, env, metrics, store_options(values), component="compactor"),
            root=normalize_path(self._path),
            env=env,
            metrics=metrics,
            has_own_wal_store=self._wal_store is not None,
            merge_operator=self._engine.get("merge_operator"),
            block_size_bytes=options.block_size_bytes,
            filter_policies=self._engine.get("filter_policies", (BloomPolicy(),)),
            disk_cache=options.disk_cache,
        )
        background = EmbeddedTasks()
        try:
            recording = MetricsBridge(self._recorder, metrics)
            recording.count_rows(lambda: db.status.rows_written)
            await background.start(embedded_tasks(place, values) | recording.tasks())
        except BaseException:
            await db.close("none")
            raise
        return db_of(db, background, recording, has_wal=options.wal_enabled)


def _lifetime_s(options: ReaderOptions) -> float:
    """Return the lifetime of a reader's checkpoint; SlateDB accepts exactly two poll intervals, the engine does not."""
    is_limit = options.checkpoint_lifetime_ms == 2 * options.manifest_poll_interval_ms
    return (options.checkpoint_lifetime_ms + is_limit) / 1000


class DbReaderBuilder(_Builder):
    """Opens a database for reading, once."""

    def __init__(self, path: str, object_store: ObjectStore) -> None:
        super().__init__(path, object_store)
        self._mode: dict[str, Any] = {}
        self._retries_max: int | None = None

    def with_options(self, options: ReaderOptions) -> None:
        """Set how to follow the database."""
        self._require_unused()
        self._retries_max = options.object_store_max_retries
        self._engine |= {
            "manifest_poll_interval_s": options.manifest_poll_interval_ms / 1000,
            "checkpoint_lifetime_s": _lifetime_s(options),
            "max_memtable_bytes": options.max_memtable_bytes,
            "skip_wal_replay": options.skip_wal_replay,
        }

    def with_reader_mode(self, mode: ReaderMode) -> None:
        """Set what to follow.

        Raises:
            Error: the id of the checkpoint is not a UUID.
        """
        self._require_unused()
        match mode:
            case ReaderMode.CHECKPOINT():
                self._mode = {"checkpoint": parse_checkpoint_id(mode[0])}
            case ReaderMode.FOLLOW_LATEST():
                self._mode = {"follow_latest": True}
            case _:
                self._mode = {}

    @raises_slatedb_errors
    async def build(self) -> DbReader:
        """Open the database.

        Raises:
            Error: invalid options, or there is no such database or checkpoint; the builder cannot be used again.
        """
        self._use()
        with slatedb_errors():
            options = engine_reader.ReaderOptions(**{**self._engine, **self._mode})
        metrics = Metrics()
        reader = await db_reader.DbReader.open(
            store=self._store,
            path=self._path,
            wal_store=self._wal_adapter,
            metrics=metrics,
            store_options=StoreOptions(retry=RetryPolicy(retries_max=self._retries_max)),
            options=options,
        )
        background = EmbeddedTasks()
        try:
            recording = MetricsBridge(self._recorder, metrics)
            await background.start(recording.tasks())
        except BaseException:
            await reader.close()
            raise
        return reader_of(reader, background, recording)
