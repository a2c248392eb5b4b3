"""Opens a database for writing (docs/reference/protocol.md 4.1)."""

from dataclasses import replace
from typing import TYPE_CHECKING

from shale.core.lazy_names import import_at_call
from shale.engine.embedded.start import start_services
from shale.engine.flush.writer_checkpoint import WriterCheckpoint
from shale.engine.location import ConnectedDatabase, DatabaseLocation, DatabaseStores
from shale.engine.opening import opening
from shale.engine.options import DbOptions
from shale.engine.write.claim import Admission, ClaimOptions, claim_database
from shale.engine.write.writer import Writer
from shale.env import Env
from shale.kernels.rows import Rows
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.wal_store import WalStore
from shale.sst.process_cache import PROCESS_CACHE
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import WalId

if TYPE_CHECKING:
    from shale.engine.embedded.services import EmbeddedServices
    from shale.engine.preload import preload_disk_cache
    from shale.engine.write.live_writer import require_no_live_writer
else:
    preload_disk_cache, require_no_live_writer = import_at_call(
        globals(),
        preload_disk_cache="shale.engine.preload",
        require_no_live_writer="shale.engine.write.live_writer",
    )

log = get_logger("writer")


async def open_for_writing(
    where: DatabaseLocation, options: DbOptions, env: Env, metrics: Metrics
) -> tuple[Writer, DatabaseStores, "EmbeddedServices | None"]:
    """Connect to the stores of a database, become its writer, and start the services of this process.

    Raises:
        ShaleError: as ``open_writer``.
    """
    stores = where.connect(env, metrics, component="writer")
    try:
        database = where.connected(stores)
        async with opening(where, stores):
            writer = await open_writer(database, options, env=env, metrics=metrics)
    except BaseException:
        await stores.aclose()
        raise
    return writer, stores, await start_services(writer, database, options, metrics)


async def open_writer(
    database: ConnectedDatabase,
    options: DbOptions,
    *,
    env: Env,
    metrics: Metrics,
    admit: Admission | None = None,
    wal_rows: dict[int, Rows] | None = None,
) -> Writer:
    """Become the writer of a database, replay its WAL and start its tasks.

    Args:
        database: its stores and path.
        options: limits and defaults.
        env: clock, ids, CPU.
        metrics: gets the writer's metrics.
        admit: may refuse before anything is written; see ``ClaimOptions``.
        wal_rows: of WAL files that were read before, by id; removed as they are replayed.

    Raises:
        InvalidDbState: this database cannot be opened for writing.
        SegmentExtractorMismatch, SegmentPrefixNotRecognized: another extractor made its segments.
        FencedError: a newer writer claimed meanwhile.
        LiveWriter: another writer seems to be alive, and ``take_over`` is off.
        WalTruncated: rows that must be replayed are gone.
    """
    store, root = database.store, database.root
    protocol = writer_protocol(database, options)
    wal = WalStore(
        database.wal_store or store,
        root,
        transformer=database.transformer,
        marks_epoch=options.wal_epoch_metadata,
    )
    claim = await claim_database(
        ManifestStore(store, root, env, metrics, protocol),
        wal,
        store=store,
        root=root,
        env=env,
        metrics=metrics,
        options=ClaimOptions(
            create_if_missing=options.create_if_missing,
            wal_store=database.wal_store,
            admit=_no_live_writer(wal, env) if admit is None and not options.take_over else admit,
            extractor=options.segment_extractor,
            max_parallel_writes=options.max_parallel_writes,
            keys=options.enforce_visible_range,
            checkpoint=WriterCheckpoint.of_options(options, env),
            wal_rows=wal_rows,
        ),
    )
    if claim.keys != options.enforce_visible_range:
        options = replace(options, enforce_visible_range=claim.keys)
    writer = Writer(claim, store=store, wal_files=wal, root=root, options=options, env=env, metrics=metrics)
    try:
        await writer.start()
        if (disk := PROCESS_CACHE.preloading(options.disk_cache)) is not None:
            await preload_disk_cache(store, writer.views.reader, writer.manifest.current, disk)
    except BaseException:
        # Also on cancellation: the caller gets no handle, so only this code can end the tasks.
        await writer.abort()
        raise
    log.info(Event.DB_OPENED, path=root, epoch=writer.manifest.epoch)
    return writer


def writer_protocol(database: ConnectedDatabase, options: DbOptions) -> ProtocolOptions:
    """Return how a writer with these options reads and writes manifests."""
    return ProtocolOptions(
        component="writer",
        probe_max_staleness_s=options.probe_max_staleness_s,
        missing_boundary=MissingBoundary(options.missing_boundary),
        boundary_files_enabled=options.boundary_files_enabled,
        manifest_update_timeout_s=options.manifest_update_timeout_s,
        manifest_write_version=database.manifest_write_version,
    )


def _no_live_writer(wal: WalStore, env: Env) -> Admission:
    """Return the admission of a writer with ``take_over`` off."""

    async def admit(stored: StoredManifest, last_wal_id: WalId) -> None:
        await require_no_live_writer(stored, last_wal_id, now_ms=env.clock.now_ms(), wal_time=wal.modified_ms)

    return admit
