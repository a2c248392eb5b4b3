"""From a store and a path to a writer that serves (docs/protocol.md 4.1)."""

from shale.engine.open import Admission, claim_database
from shale.engine.options import DbOptions
from shale.engine.writer import Writer
from shale.env import Env
from shale.format.transform import BlockTransformer
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

log = get_logger("writer")


async def open_writer(
    store: ObjectStore,
    root: str,
    options: DbOptions,
    *,
    env: Env,
    metrics: Metrics,
    wal_store: ObjectStore | None = None,
    admit: Admission | None = None,
    transformer: BlockTransformer | None = None,
) -> Writer:
    """Become the writer of the database at ``root`` and serve it.

    Args:
        admit: may refuse before anything is written; see ``claim_database``.
        transformer: applied to all sections of SSTs and WAL files.

    Raises:
        InvalidDbState: this database cannot be opened for writing.
        SegmentExtractorMismatch, SegmentPrefixNotRecognized: another extractor made its segments.
        FencedError: a newer writer came in between.
        WalTruncated: rows that must be replayed are gone.
    """
    protocol = ProtocolOptions(
        component="writer",
        probe_max_staleness_s=options.probe_max_staleness_s,
        missing_boundary=MissingBoundary(options.missing_boundary),
        boundary_files_enabled=options.boundary_files_enabled,
        manifest_update_timeout_s=options.manifest_update_timeout_s,
    )
    wal = WalStore(wal_store or store, root, env, transformer=transformer)
    claim = await claim_database(
        ManifestStore(store, root, env, metrics, protocol),
        wal,
        store=store,
        root=root,
        env=env,
        metrics=metrics,
        create_if_missing=options.create_if_missing,
        separate_wal=wal_store is not None,
        extractor=options.segment_extractor,
        admit=admit,
    )
    writer = Writer(claim, store=store, wal_files=wal, root=root, options=options, env=env, metrics=metrics)
    try:
        await writer.start()
    except BaseException:
        # Also when the caller gives up: the tasks must not outlive a handle that nobody has.
        await writer.abort()
        raise
    log.info(Event.DB_OPENED, path=root, epoch=writer.manifest.epoch)
    return writer
