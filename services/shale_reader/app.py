"""The reader daemon: a following reader with its data ports.

Source: docs/concepts/processes.md.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from shale.api.admin_openapi import openapi_route
from shale.api.build import build_reader_api
from shale.console.install import add_console
from shale.core.memory_account import MemoryPart
from shale.engine.db_reader import DbReader
from shale.engine.reader.options import ReaderMode
from shale.env import Clock
from shale.errors import CheckpointMissing
from shale.server.data_ports import open_data_ports, port_services, serve_database
from shale.service.health import OK, HealthCheckResult
from shale.service.process import Process
from shale.sst.budget import DEFAULT_CAPACITY_BYTES, MemoryBudget
from shale_reader.settings import ReaderSettings


async def run_reader(process: Process[ReaderSettings]) -> None:
    """Open the database for reading, serve it until the process has to stop, and release its checkpoint.

    Raises:
        LatestRecordMissing: there was no database within ``store.start_timeout``.
        CheckpointMissing: the configured checkpoint does not exist, or has expired.
        ShaleError: the reader has lost its checkpoint, or stored data is corrupt.
    """
    settings = process.settings
    with open_data_ports(settings, process.certificate, process.memory) as ports:
        opened = await process.wait_for(partial(_open, process))
        if isinstance(opened, CheckpointMissing):
            raise opened
        process.health.add_status(partial(_status, opened, process.env.clock))
        process.memory.account.add_meter(MemoryPart.WAL_ROWS, lambda: opened.replayed_bytes)
        if settings.options().mode is not ReaderMode.CHECKPOINT:
            check = partial(_lag, opened, process.env.clock, settings.ready.max_lag)
            process.health.add_ready_check("lag", check)
        try:
            api = build_reader_api(
                opened,
                settings.http,
                process.metrics,
                process.env,
                services=port_services(process),
            )
            process.admin.add_route(openapi_route())
            add_console(process, opened, api.quotas)
            await serve_database(process, ports, opened, api)
        finally:
            with anyio.CancelScope(shield=True):
                await opened.close()


async def _open(process: Process[ReaderSettings]) -> DbReader | CheckpointMissing:
    """Open the reader; return a missing checkpoint instead of raising, because waiting for it is useless."""
    try:
        return await DbReader.open(
            process.root,
            store=process.store,
            wal_store=process.wal_store,
            block_transformer=process.settings.block_transformer(),
            manifest_write_version=process.settings.manifest.write_version,
            options=replace(process.settings.options(), cache=_cache(process)),
            env=process.env,
            metrics=process.metrics,
        )
    except CheckpointMissing as missing:
        return missing


def _cache(process: Process[ReaderSettings]) -> MemoryBudget:
    """Return the cache of the reader, which shrinks when memory is full."""
    memory = process.memory
    if memory.account.cache is None:  # ``_open`` is called until there is a database
        size_bytes = process.settings.block_cache_bytes
        capacity_bytes = DEFAULT_CAPACITY_BYTES if size_bytes is None else size_bytes
        memory.account.add_cache(
            MemoryBudget(capacity_bytes, large_values=memory.large_values, scanned_values=memory.scanned_values)
        )
    cache = memory.account.cache
    assert isinstance(cache, MemoryBudget)
    return cache


def _status(db: DbReader, clock: Clock) -> dict[str, Any]:
    return {
        "manifest_id": db.manifest_id,
        "visible_seq": db.visible_seq,
        "checkpoint": str(db.checkpoint_id) if db.checkpoint_id is not None else None,
        "lag_s": _lag_s(db, clock),
        "wal_gaps": [str(gap) for gap in db.wal_gaps],
        "l0_ssts": sum(len(tree.l0) for _, tree in db.manifest.trees()),
    }


def _lag(db: DbReader, clock: Clock, max_s: float) -> HealthCheckResult:
    lag_s = _lag_s(db, clock)
    if lag_s <= max_s:
        return OK
    return HealthCheckResult(ok=False, message=f"the served state is {lag_s:.0f} s old")


def _lag_s(db: DbReader, clock: Clock) -> float:
    """Return the seconds since the last poll, the largest possible age of the served state."""
    return max(0.0, (clock.now_ms() - db.last_poll_ms) / 1000)
