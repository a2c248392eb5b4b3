"""Sessions on a database in memory, and decoded responses."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

import shale
from shale.env import Env, InlineCpu
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS, READER_COMMANDS, WRITER_COMMANDS
from shale.resp.options import RespOptions
from shale.resp.session import RespSession
from shale.service.access import AccessTokens, Quotas, Rates, Role
from shale.service.process import PortServices
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock


class RespFailure(Exception):
    """An error in a response."""


def decoded(data: bytes) -> Any:
    """Decode a response; errors inside it are values, a single error is raised."""
    value, rest = decode_one(data)
    assert rest == b"", rest
    if isinstance(value, RespFailure):
        raise value
    return value


def decode_one(data: bytes) -> tuple[Any, bytes]:
    """Return the first response and the bytes after it."""
    line, rest = data.split(b"\r\n", 1)
    kind, text = line[:1], line[1:]
    match kind:
        case b"+":
            return text.decode(), rest
        case b"-":
            return RespFailure(text.decode()), rest
        case b":":
            return int(text), rest
        case b"_":
            return None, rest
        case b"$" | b"=":
            size = int(text)
            if size < 0:
                return None, rest
            assert rest[size : size + 2] == b"\r\n"
            return (rest[:size] if kind == b"$" else rest[4:size]), rest[size + 2 :]
    count = int(text)
    if count < 0:
        return None, rest
    items = []
    for _ in range(count * 2 if kind == b"%" else count):
        item, rest = decode_one(rest)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == b"%" else items), rest


class Talker:
    """A client without a socket: call it with the words of a command."""

    def __init__(self, session: RespSession) -> None:
        self.session = session

    async def __call__(self, *words: str | bytes | int) -> Any:
        args = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return decoded(await self.session.execute(args))


class Harness:
    """One database with any number of talkers."""

    def __init__(self, db: shale.Db, backend: Backend, clock: ManualClock, access: AccessTokens) -> None:
        self.db = db
        self.access = access
        self.backend = backend
        self.clock = clock

    def talker(self) -> Talker:
        return Talker(RespSession(self.backend, WRITER_COMMANDS))


@asynccontextmanager
async def harness(
    *,
    token: str | None = None,
    tokens: Mapping[str, Role] | None = None,
    options: RespOptions | None = None,
    store: ObjectStore | None = None,
    rates: Mapping[Role, Rates] | None = None,
    **settings: Any,
) -> AsyncIterator[Harness]:
    """Open a database and its backend."""
    clock = ManualClock()
    env = Env(clock, random.Random(5), InlineCpu())
    roles = {token: Role.WRITE} if token is not None else tokens or {}
    quotas = None if rates is None else Quotas(clock, Metrics(), rates)
    access = AccessTokens(((SecretStr(each), role) for each, role in roles.items()), quotas=quotas)
    async with shale.Db.open("db", store=MemoryStore() if store is None else store, env=env, **settings) as db:
        services = PortServices(tokens=access)
        backend = Backend(db, env, options or RespOptions(), services, COMMANDS, metrics=Metrics())
        yield Harness(db, backend, clock, access)


@asynccontextmanager
async def reading_harness() -> AsyncIterator[tuple[shale.Db, shale.DbReader, Talker]]:
    """A database, a reader of it, and a talker to the reader."""
    store, clock = MemoryStore(), ManualClock()
    env = Env(clock, random.Random(6), InlineCpu())
    async with (
        shale.Db.open("db", store=store, env=env, flush_interval=0) as db,
        shale.DbReader.open("db", store=store, env=env) as reader,
    ):
        backend = Backend(reader, env, RespOptions(), PortServices(), COMMANDS, metrics=Metrics())
        yield db, reader, Talker(RespSession(backend, READER_COMMANDS))
