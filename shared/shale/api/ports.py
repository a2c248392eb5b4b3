"""Which calls a data port has: all of them on a database that is open for writing, or those that read."""

from shale.api.app import Api
from shale.api.limits import Limits
from shale.api.moments import Moment
from shale.api.read_calls import ReadCalls
from shale.api.settings import HttpSection, WritesHttpSection
from shale.api.snapshot_calls import SnapshotCalls
from shale.api.snapshots import Snapshots
from shale.api.write_calls import WriteCalls
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.engine.read_point import Durability
from shale.env import Env
from shale.telemetry.metrics import Metrics


def write_port(
    db: Db, http: WritesHttpSection, metrics: Metrics, env: Env, *, max_key_bytes: int, sample_rate: float = 1.0
) -> Api:
    """All calls.  ``sample_rate``: the share of calls whose time is observed."""

    async def take(durability: Durability) -> Moment:
        return await db.snapshot(durable=durability == "durable")

    limits = Limits(http, env, metrics, sample_rate=sample_rate)
    snapshots = Snapshots(take, env, http)
    routes = [
        *ReadCalls(db, snapshots, limits).routes(),
        *SnapshotCalls(snapshots, limits).routes(),
        *WriteCalls(db, limits, env, max_key_bytes=max_key_bytes, names_max=http.max_idempotency_keys).routes(),
    ]
    return Api(routes, http, metrics, env, background=[snapshots.run])


def read_port(db: DbReader, http: HttpSection, metrics: Metrics, env: Env, *, sample_rate: float = 1.0) -> Api:
    """The calls that read; no snapshots where no checkpoint would keep them."""

    async def take(durability: Durability) -> Moment:  # noqa: ARG001 - all that a reader sees is durable
        return await db.snapshot()

    limits = Limits(http, env, metrics, sample_rate=sample_rate)
    snapshots = Snapshots(take, env, http)
    routes = ReadCalls(db, snapshots, limits).routes()
    if db.checkpoint_id is not None:
        routes += SnapshotCalls(snapshots, limits).routes()
    return Api(routes, http, metrics, env, background=[snapshots.run])
