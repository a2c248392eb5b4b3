"""The writer daemon, wired together: the engine below, the network interface above (docs/operations.md 10 and 11)."""

import socket
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.place import AdminPlace
from shale.api.admin_openapi import FLUSH, checkpoint_paths, description_route
from shale.api.checkpoint_calls import CheckpointCalls
from shale.api.ports import write_port
from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.errors import FencedError, ShaleError
from shale.resp.port import resp_socket, serving_port
from shale.service.health import OK, State, Verdict
from shale.service.http_server import open_socket, serving
from shale.service.problems import problem_of, response
from shale.service.process import Process
from shale.service.until_end import until_end
from shale_writer.settings import WriterSettings


async def run_writer(process: Process[WriterSettings]) -> None:
    """Open the database, serve it until the process shall stop, bring what was written to the store, and close.

    Raises:
        FencedError: another writer took over.
        ShaleError: the engine failed otherwise.
    """
    settings = process.settings
    with (
        open_socket(settings.http.host, settings.http.port, setting="http.port") as listener,
        resp_socket(settings.resp) as resp_listener,
    ):
        db = await Db.open(
            process.root,
            store=process.store,
            wal_store=process.wal_store,
            block_transformer=settings.block_transformer(),
            options=settings.options(),
            env=process.env,
            metrics=process.metrics,
        )
        process.undurable = partial(_undurable, db)
        process.health.add_status(partial(_status, db))
        process.health.add_ready_check("pressure", partial(_pressure, db, settings.max_unflushed_bytes))
        try:
            await _serve(process, db, listener, resp_listener)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await db.close(flush=FlushType.NONE)
            raise
        await db.close(flush=settings.close_flush())


async def _serve(
    process: Process[WriterSettings], db: Db, listener: socket.socket, resp_listener: socket.socket | None
) -> None:
    settings = process.settings
    api = write_port(
        db,
        settings.http,
        process.metrics,
        process.env,
        max_key_bytes=settings.max_key_bytes,
        sample_rate=settings.metrics.sample_rate,
    )
    _add_admin_calls(process, db)
    async with (
        api.running(),
        serving(
            api,
            listener,
            request_timeout_s=settings.shutdown.request_timeout,
            connections_max=settings.http.max_connections,
        ),
        serving_port(
            db,
            resp_listener,
            process.env,
            process.metrics,
            settings.resp,
            http_token=settings.http.bearer_token,
            drain_timeout_s=settings.shutdown.request_timeout,
            max_key_bytes=settings.max_key_bytes,
        ) as ports,
    ):
        process.ready(port=listener.getsockname()[1], **ports)
        problem = await until_end(process.draining, db.failed)
        if isinstance(problem, FencedError):
            process.health.set_state(State.FENCED)
        api.draining = True
    if problem is not None:
        raise problem


def _add_admin_calls(process: Process[WriterSettings], db: Db) -> None:
    place = AdminPlace.of(process.stores, process.root, process.env, process.metrics, component="writer")
    checkpoints = CheckpointCalls(CheckpointAdmin(place), process.env, db)
    for route in (_flush_route(db), *checkpoints.routes()):
        process.admin.add_route(route)
    process.admin.add_route(description_route(FLUSH, checkpoint_paths(with_scope=True)))


def _status(db: Db) -> dict[str, Any]:
    trees = [tree for _, tree in db.manifest.trees()]
    return {
        "writer_epoch": db.writer_epoch,
        "manifest_id": db.manifest_id,
        "last_seq": db.last_seq,
        "durable_seq": db.durable_seq,
        "l0_ssts": sum(len(tree.l0) for tree in trees),
        "sorted_runs": sum(len(tree.compacted) for tree in trees),
        "unflushed_bytes": db.unflushed_bytes,
        "checkpoints": len(db.manifest.checkpoints),
    }


def _pressure(db: Db, limit_bytes: int) -> Verdict:
    if db.unflushed_bytes < limit_bytes:
        return OK
    return Verdict(ok=False, message=f"{db.unflushed_bytes} bytes are not flushed; writes wait")


def _undurable(db: Db) -> tuple[int, int] | None:
    return (db.durable_seq + 1, db.last_seq) if db.durable_seq < db.last_seq else None


def _flush_route(db: Db) -> Route:
    async def flush(request: Request) -> Response:  # noqa: ARG001 - the signature of a route
        try:
            await db.flush()
        except ShaleError as error:
            return response(problem_of(error))
        return Response(status_code=204)

    return Route("/v1/admin/flush", flush, methods=["POST"])
