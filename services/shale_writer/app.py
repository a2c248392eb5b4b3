"""The writer daemon: the engine with its data ports and admin routes.

Source: docs/reference/health.md and docs/concepts/shutdown.md.
"""

from dataclasses import replace
from functools import partial
from socket import gethostname
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.context import AdminContext
from shale.api.admin_openapi import FLUSH, PROMOTE, checkpoint_paths, openapi_route
from shale.api.build import build_writer_api
from shale.api.routes.checkpoints import CheckpointRoutes
from shale.console.install import add_console
from shale.core.memory_account import MemoryPart
from shale.engine.db import Db
from shale.engine.options import DbOptions, FlushType
from shale.errors import ShaleError
from shale.server.data_ports import DataPorts, open_data_ports, port_services, serve_database
from shale.service.health import OK, HealthCheckResult
from shale.service.http.problems import problem_from, response
from shale.service.process import Process
from shale.sst.budget import MemoryBudget
from shale_writer.settings import WriterSettings
from shale_writer.standby.promotion import Promotion

_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


async def run_writer(process: Process[WriterSettings]) -> None:
    """Open the database, or wait as a standby; serve it until the process has to stop, flush, and close it.

    Raises:
        FencedError: another writer took over.
        ShaleError: the engine failed for another reason.
    """
    settings = process.settings
    promotion = Promotion()
    process.admin.add_route(promotion.route())
    with open_data_ports(settings, process.certificate, process.memory) as ports:
        db = await _open(process, ports, promotion)
        if db is None:
            return
        promotion.succeeded(db.status.writer_epoch)
        process.report_undurable(partial(_undurable, db))
        process.memory.account.add_meter(MemoryPart.MEMTABLES, lambda: db.status.unflushed_bytes)
        process.memory.account.add_meter(MemoryPart.TRANSACTIONS, lambda: db.status.transaction_history_bytes)
        process.health.add_status(partial(_status, db))
        process.health.add_ready_check("pressure", partial(_check_backpressure, db, settings.max_unflushed_bytes))
        try:
            api = build_writer_api(
                db,
                settings.http,
                process.metrics,
                process.env,
                max_key_bytes=settings.max_key_bytes,
                services=port_services(process),
            )
            _add_admin_routes(process, db)
            add_console(process, db, api.quotas)
            await serve_database(process, ports, db, api, max_key_bytes=settings.max_key_bytes)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await db.close(flush=FlushType.NONE)
            raise
        await db.close(flush=settings.close_flush())


async def _open(process: Process[WriterSettings], ports: DataPorts, promotion: Promotion) -> Db | None:
    """Open the database; a standby waits until it may, and returns ``None`` if the process has to stop before."""
    settings = process.settings
    options = _with_endpoint(settings.options(), ports, settings.http.host, settings.tls.scheme)
    memory = process.memory
    cache = MemoryBudget(
        settings.block_cache_bytes, large_values=memory.large_values, scanned_values=memory.scanned_values
    )
    memory.account.add_cache(cache)
    options = replace(options, cache=cache)
    if settings.standby.enabled:
        from shale_writer.standby.run import StandbyRun

        return await StandbyRun(process, ports, options, promotion).become_writer()
    return await Db.open(
        process.root,
        store=process.store,
        wal_store=process.wal_store,
        block_transformer=settings.block_transformer(),
        manifest_write_version=settings.manifest.write_version,
        options=options,
        env=process.env,
        metrics=process.metrics,
    )


def _with_endpoint(options: DbOptions, ports: DataPorts, host: str, scheme: str) -> DbOptions:
    """Return the options with the URL that the writer tells others, unless one is set.

    A writer that listens on one address is reachable at no other one.
    """
    if options.writer_endpoint is not None:
        return options
    name = gethostname() if host in _ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    return replace(options, writer_endpoint=f"{scheme}://{name}:{ports.numbers()['port']}")


def _add_admin_routes(process: Process[WriterSettings], db: Db) -> None:
    place = AdminContext.of(process.stores, process.root, process.env, process.metrics, component="writer")
    checkpoints = CheckpointRoutes(CheckpointAdmin(place), process.env, db)
    for route in (_flush_route(db), *checkpoints.routes()):
        process.admin.add_route(route)
    process.admin.add_route(openapi_route(FLUSH, PROMOTE, checkpoint_paths(with_scope=True)))


def _status(db: Db) -> dict[str, Any]:
    trees = [tree for _, tree in db.status.manifest.trees()]
    return {
        "writer_epoch": db.status.writer_epoch,
        "manifest_id": db.status.manifest_id,
        "last_seq": db.status.last_seq,
        "durable_seq": db.status.durable_seq,
        "l0_ssts": sum(len(tree.l0) for tree in trees),
        "sorted_runs": sum(len(tree.compacted) for tree in trees),
        "unflushed_bytes": db.status.unflushed_bytes,
        "checkpoints": len(db.status.manifest.checkpoints),
    }


def _check_backpressure(db: Db, limit_bytes: int) -> HealthCheckResult:
    if db.status.unflushed_bytes < limit_bytes:
        return OK
    return HealthCheckResult(ok=False, message=f"{db.status.unflushed_bytes} bytes are not flushed; writes wait")


def _undurable(db: Db) -> tuple[int, int] | None:
    return (db.status.durable_seq + 1, db.status.last_seq) if db.status.durable_seq < db.status.last_seq else None


def _flush_route(db: Db) -> Route:
    async def flush(request: Request) -> Response:  # noqa: ARG001 - the signature of a route
        try:
            await db.flush()
        except ShaleError as error:
            return response(problem_from(error))
        return Response(status_code=204)

    return Route("/v1/admin/flush", flush, methods=["POST"])
