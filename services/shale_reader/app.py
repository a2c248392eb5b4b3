"""The reader daemon, wired together: a following reader below, the network interfaces above (docs/operations.md 2)."""

import socket
from functools import partial
from typing import Any

import anyio

from shale.api.ports import read_port
from shale.engine.db_reader import DbReader
from shale.engine.reader_options import ReaderMode
from shale.env import Clock
from shale.errors import CheckpointMissing
from shale.resp.port import resp_socket, serving_port
from shale.service.health import OK, Verdict
from shale.service.http_server import open_socket, serving
from shale.service.process import Process
from shale.service.until_end import until_end
from shale_reader.settings import ReaderSettings


async def run_reader(process: Process[ReaderSettings]) -> None:
    """Open the database for reading, serve it until the process shall stop, and give the checkpoint back.

    Raises:
        LatestRecordMissing: there was no database within ``store.start_timeout``.
        CheckpointMissing: the one to serve is not listed, or has expired.
        ShaleError: what is served cannot be protected any more, or the store answers with damage.
    """
    settings = process.settings
    with (
        open_socket(settings.http.host, settings.http.port, setting="http.port") as listener,
        resp_socket(settings.resp) as resp_listener,
    ):
        opened = await process.wait_for(partial(_open, process))
        if isinstance(opened, CheckpointMissing):
            raise opened
        process.health.add_status(partial(_status, opened, process.env.clock))
        if settings.options().mode is not ReaderMode.CHECKPOINT:
            check = partial(_lag, opened, process.env.clock, settings.ready.max_lag)
            process.health.add_ready_check("lag", check)
        try:
            await _serve(process, opened, listener, resp_listener)
        finally:
            with anyio.CancelScope(shield=True):
                await opened.close()


async def _open(process: Process[ReaderSettings]) -> DbReader | CheckpointMissing:
    """A checkpoint that is not there will not come, so waiting for it is of no use."""
    try:
        return await DbReader.open(
            process.root,
            store=process.store,
            wal_store=process.wal_store,
            block_transformer=process.settings.block_transformer(),
            options=process.settings.options(),
            env=process.env,
            metrics=process.metrics,
        )
    except CheckpointMissing as missing:
        return missing


async def _serve(
    process: Process[ReaderSettings], db: DbReader, listener: socket.socket, resp_listener: socket.socket | None
) -> None:
    settings = process.settings
    api = read_port(db, settings.http, process.metrics, process.env, sample_rate=settings.metrics.sample_rate)
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
        ) as ports,
    ):
        process.ready(port=listener.getsockname()[1], **ports)
        problem = await until_end(process.draining, db.failed)
        api.draining = True
    if problem is not None:
        raise problem


def _status(db: DbReader, clock: Clock) -> dict[str, Any]:
    return {
        "manifest_id": db.manifest_id,
        "visible_seq": db.visible_seq,
        "checkpoint": str(db.checkpoint_id) if db.checkpoint_id is not None else None,
        "lag_s": _lag_s(db, clock),
        "l0_ssts": sum(len(tree.l0) for _, tree in db.manifest.trees()),
    }


def _lag(db: DbReader, clock: Clock, max_s: float) -> Verdict:
    lag_s = _lag_s(db, clock)
    if lag_s <= max_s:
        return OK
    return Verdict(ok=False, message=f"what is served is {lag_s:.0f} s old")


def _lag_s(db: DbReader, clock: Clock) -> float:
    """How long ago it was known that nothing newer was there."""
    return max(0.0, (clock.now_ms() - db.last_poll_ms) / 1000)
