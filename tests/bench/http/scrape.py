"""What a scrape of a writer costs: all its metrics at default settings, as text."""

import asyncio
from collections.abc import Iterator

from prometheus_client.exposition import generate_latest

import shale
from shale.api.build import build_writer_api
from shale.api.settings import WritesHttpSection
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS
from shale.resp.metrics import export
from shale.resp.options import RespOptions
from shale.service.admin import register_process_metrics
from shale.service.health import Health
from shale.service.process import PortServices
from shale.store.connect import connect
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.bench.line import BenchLine, cpu_seconds

ROUNDS = 21
LIMIT_MS = 20


def scrape_lines() -> Iterator[BenchLine]:
    """CPU time of one scrape, and the series in it."""
    yield from asyncio.run(_measure())


async def _measure() -> list[BenchLine]:
    env, metrics = Env.system(cpu_threads=1), Metrics(db="orders")
    store = connect(MemoryStore(), env, metrics, component="writer")
    db = await shale.Db.open("orders", store=store, env=env, metrics=metrics, compactor=False, gc=False)
    try:
        await db.put(b"a", b"1")
        register_process_metrics(metrics, role="writer", settings_hash="0", started_s=0)
        Health(env.clock, metrics)
        build_writer_api(db, WritesHttpSection(), metrics, env, max_key_bytes=1024)
        export(Backend(db, env, RespOptions(), PortServices(), COMMANDS, metrics=metrics), metrics, COMMANDS)

        def scrape() -> bytes:
            metrics.refresh()
            return generate_latest(metrics.registry)

        series = sum(not line.startswith(b"#") for line in scrape().splitlines())
        seconds = cpu_seconds(scrape, ROUNDS)
    finally:
        await db.close()
    target = f"at most {LIMIT_MS} ms on a machine of 2 cores"
    return [
        BenchLine(name="scrape: a writer's metrics", ours=seconds * 1000, unit="ms CPU", target=target),
        BenchLine(name="scrape: series in it", ours=series, unit="series", target="at most 2,500"),
    ]
