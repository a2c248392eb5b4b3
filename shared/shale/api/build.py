"""Builds the API of a writer (all routes) or of a reader (read routes only)."""

from shale.api.app import Api
from shale.api.limits import Limits
from shale.api.routes.reads import ReadRoutes
from shale.api.routes.snapshots import SnapshotRoutes
from shale.api.routes.writer import WriterRoute
from shale.api.routes.writes import WriteRoutes
from shale.api.settings import HttpSection, WritesHttpSection
from shale.api.snapshot_leases import SnapshotHandle, SnapshotLeases
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.engine.read.read_point import Durability
from shale.env import Env
from shale.service.process import NO_SERVICES, PortServices
from shale.telemetry.metrics import Metrics


def build_writer_api(
    db: Db,
    http: WritesHttpSection,
    metrics: Metrics,
    env: Env,
    *,
    max_key_bytes: int,
    services: PortServices = NO_SERVICES,
) -> Api:
    """Build the API of a writer.

    Args:
        db: the open database.
        http: the limits of the port.
        metrics: the metrics registry.
        env: clock, randomness, ids and threads.
        max_key_bytes: longer keys are rejected.
        services: what the ports of the process share.
    """

    async def take(durability: Durability) -> SnapshotHandle:
        return await db.snapshot(durable=durability == "durable")

    limits = Limits(http, metrics, env, services)
    snapshots = SnapshotLeases(take, env, http)
    routes = [
        *ReadRoutes(db, snapshots, limits).routes(),
        *SnapshotRoutes(snapshots, limits).routes(),
        *WriteRoutes(db, limits, env, max_key_bytes=max_key_bytes, names_max=http.max_idempotency_keys).routes(),
        *WriterRoute(db).routes(),
    ]
    return Api(routes, http, metrics, env, background=[snapshots.run], services=services)


def build_reader_api(
    db: DbReader,
    http: HttpSection,
    metrics: Metrics,
    env: Env,
    *,
    services: PortServices = NO_SERVICES,
) -> Api:
    """Build the API of a reader; without a checkpoint that protects them it has no snapshots."""

    async def take(durability: Durability) -> SnapshotHandle:  # noqa: ARG001 - everything that a reader sees is durable
        return await db.snapshot()

    limits = Limits(http, metrics, env, services)
    snapshots = SnapshotLeases(take, env, http)
    routes = ReadRoutes(db, snapshots, limits).routes()
    if db.checkpoint_id is not None:
        routes += SnapshotRoutes(snapshots, limits).routes()
    return Api(routes, http, metrics, env, background=[snapshots.run], services=services)
