"""The writer daemon, wired together: the engine below, the network interface above (docs/operations.md 10 and 11)."""

import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.api.ports import write_port
from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.errors import FencedError, ShaleError
from shale.resp.server import serving_resp
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
        _resp_socket(settings) as resp_listener,
    ):
        db = await Db.open(
            process.root,
            store=process.store,
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
    process.admin.add_route(_flush_route(db))
    async with (
        api.running(),
        serving(api, listener, request_timeout_s=settings.shutdown.request_timeout),
        _serving_resp(process, db, resp_listener) as ports,
    ):
        process.ready(port=listener.getsockname()[1], **ports)
        problem = await until_end(process.draining, db.failed)
        if isinstance(problem, FencedError):
            process.health.set_state(State.FENCED)
        api.draining = True
    if problem is not None:
        raise problem


def _resp_socket(settings: WriterSettings) -> contextlib.AbstractContextManager[socket.socket | None]:
    resp = settings.resp
    return open_socket(resp.host, resp.port, setting="resp.port") if resp.enabled else contextlib.nullcontext()


@contextlib.asynccontextmanager
async def _serving_resp(
    process: Process[WriterSettings], db: Db, listener: socket.socket | None
) -> AsyncIterator[dict[str, int]]:
    """Serve the Redis port, if there is one; gives its number for the log."""
    if listener is None:
        yield {}
        return
    settings = process.settings
    port = listener.getsockname()[1]
    async with serving_resp(
        db,
        listener,
        process.env,
        process.metrics,
        settings.resp.options(max_key_bytes=settings.max_key_bytes),
        token=settings.resp.token(settings.http.bearer_token),
        drain_timeout_s=settings.shutdown.request_timeout,
    ):
        yield {"resp_port": port}


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
