"""A data port on a database in memory, served in this process, and a client of it."""

import random
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import orjson

import shale
from shale.api.build import build_writer_api
from shale.api.settings import WritesHttpSection
from shale.env import Env, InlineCpu, SystemClock
from shale.service.access import AccessTokens
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics


def b64(data: bytes) -> str:
    return b64encode(data).decode()


class OffsetClock(SystemClock):
    """The machine's clock with an offset that a test sets."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead_s * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Port:
    """``client`` sends its requests to ``db``."""

    def __init__(self, db: shale.Db, app: Any, client: httpx.AsyncClient, clock: OffsetClock) -> None:
        self.db = db
        self.app = app
        self.client = client
        self.clock = clock

    async def post(self, path: str, fields: object, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(path, json=fields, headers=named)

    async def scan(self, query: str = "", **fields: Any) -> tuple[list[bytes], dict[str, Any], httpx.Headers]:
        """Return keys, the end record and the headers of a scan."""
        answer = await self.post(f"/v1/scan{query}", fields)
        assert answer.status_code == 200, answer.text
        *rows, ending = map(orjson.loads, answer.content.splitlines())
        return [b64decode(row["key"]) for row in rows], ending, answer.headers


@asynccontextmanager
async def open_port(
    *,
    limits: dict[str, Any] | None = None,
    tokens: AccessTokens | None = None,
    clock: OffsetClock | None = None,
    memory: ProcessMemory | None = None,
    **options: Any,
) -> AsyncIterator[Port]:
    clock = OffsetClock() if clock is None else clock
    memory = ProcessMemory() if memory is None else memory
    env = Env(clock, random.Random(1), InlineCpu())
    http = WritesHttpSection(**cast("Any", limits or {}))
    settings = {"flush_interval": 0, **options}
    async with shale.Db.open("db", store=MemoryStore(), env=env, **settings) as db:
        api = build_writer_api(
            db, http, Metrics(), env, max_key_bytes=65_535, services=PortServices(tokens=tokens, memory=memory)
        )
        transport = httpx.ASGITransport(app=cast("Any", api))
        async with api.running(), httpx.AsyncClient(transport=transport, base_url="http://port") as client:
            yield Port(db, api, client, clock)
