"""Starts the services of a writer."""

from collections.abc import Callable

from shale.engine.embedded.context import EmbeddedContext
from shale.engine.embedded.services import EmbeddedServices
from shale.engine.embedded.work import L0Work
from shale.engine.embedded_defaults import EMBEDDED_DEFAULTS
from shale.engine.flush.uploader import sst_options
from shale.engine.location import ConnectedDatabase
from shale.engine.options import DbOptions
from shale.engine.write.writer import Writer
from shale.telemetry.metrics import Metrics
from shale.types import Epoch, Manifest

_L0_MIN_SOURCES = 4


async def start_services(
    writer: Writer, database: ConnectedDatabase, options: DbOptions, metrics: Metrics
) -> EmbeddedServices | None:
    """Start the services that the options, or else ``shale.configure``, ask for; ``None``: none."""
    compactor = EMBEDDED_DEFAULTS.compactor if options.compactor is None else options.compactor
    gc = EMBEDDED_DEFAULTS.gc if options.gc is None else options.gc
    if not (compactor or gc):
        return None
    most = min(options.l0_max_ssts, options.l0_max_ssts_per_key)
    work = L0Work(lambda: writer.manifest.current, writer.durability.status_changed, min(_L0_MIN_SOURCES, most), most)
    context = EmbeddedContext(
        store=database.store,
        root=database.root,
        env=writer.env.with_threads(options.max_background_jobs),
        metrics=metrics,
        work=work,
        sst=sst_options(options, database.transformer),
        writer_epoch=Epoch(writer.manifest.epoch),
        l0_sst_size_bytes=options.l0_sst_size_bytes,
        max_jobs=options.max_background_jobs,
        merge_operator=options.resolve_merge_operator(),
        disk_cache=options.disk_cache,
        wal_store=database.wal_store,
        is_own_wal=own_wal(lambda: writer.manifest.current, writer.manifest.epoch, writer.durability.durable_wal_id),
        collects=gc,
    )
    services = EmbeddedServices(context, writer.durability.wait_failed)
    await services.start(compactor=compactor, gc=gc)
    return services


def own_wal(read: Callable[[], Manifest], epoch: int, claimed_after: int) -> Callable[[int], bool]:
    """Return a function that tells whether a WAL file was written and flushed by one writer.

    A writer that was replaced never takes the files of the next one for its own, whichever manifest it has read.

    Args:
        read: returns the newest manifest that the writer knows.
        epoch: the writer's.
        claimed_after: the last WAL file before its own, its fence.
    """

    def is_own(wal_id: int) -> bool:
        newest = read()
        return newest.writer_epoch == epoch and claimed_after < wal_id <= newest.replay_after_wal_id

    return is_own
