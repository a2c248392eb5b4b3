"""Random commands get the same answers from Redis and from the RESP port, on two connections each.

``make tools`` installs a ``redis-server``; version 7 is compared.
"""

import random
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.external_tools import require_tool
from tests.integration.writer.writer_process import writer

COMMANDS = 3000
KEYS = ("a", "b", "c", "d e", "n")
NUMBERS = (
    *("0", "1", "-1", "5", "100", "9223372036854775807", "-9223372036854775808", "9223372036854775808"),
    *("01", "+1", " 1", "1.5", "", "abc", "-0"),
)
FLOATS = ("0", "1.5", "-1.5", "3.0e3", "inf", "nan", "abc", "", " 1", "0.1", "-0", "1.", ".5", "+2")
VALUES = ("hello", "", "1", "10", "-3", "9223372036854775800", "3.14", b"\xff\x00", "x" * 50, " 5")
TIMES = ("500000", "0", "-1", "abc", "9223372036854775807", "9223372036854775", "4102444800", "4102444800000", "+5", "")
LIVES = ("EX", "PX", "EXAT", "PXAT")
CLOSE = 2
"""How far apart times of life may be: the servers answer one after another."""

Command = list[Any]
Server = tuple[Any, ...]
"""Connections to one server."""

CONNECTION: Any = redis.Connection
"""Its methods have no types."""


class Generator:
    """Random commands; wrong ones, too."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def command(self) -> Command:
        """Return the next command."""
        kinds: tuple[Callable[[], Command], ...] = (
            lambda: ["SET", self._key(), self._one(VALUES), *self._options(3, "NX", "XX", "GET", "KEEPTTL", *LIVES)],
            lambda: ["GETEX", self._key(), *self._options(2, "PERSIST", *LIVES)],
            lambda: [self._one(("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT")), self._key(), self._one(TIMES),
                     *self._options(2, "NX", "XX", "GT", "LT")],
            lambda: [self._one(("SETEX", "PSETEX")), self._key(), self._one(TIMES), self._one(VALUES)],
            lambda: [self._one(("INCRBY", "DECRBY", "GETBIT")), self._key(), self._one(NUMBERS)],
            lambda: ["INCRBYFLOAT", self._key(), self._one(FLOATS)],
            lambda: [self._one(("APPEND", "SETNX", "GETSET")), self._key(), self._one(VALUES)],
            lambda: ["SETRANGE", self._key(), self._one(("0", "5", "-1", "100", "abc")), self._one(VALUES)],
            lambda: ["GETRANGE", self._key(), self._one(NUMBERS), self._one(("-1", "0", "3", "100"))],
            lambda: [self._one(("DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "WATCH")), *self._several()],
            lambda: [self._one(("MSET", "MSETNX")), *[part for key in self._several() for part in (key, key)]],
            lambda: [self._one(("RENAME", "RENAMENX", "COPY")), self._key(), self._key()],
            lambda: [self._one(("INCR", "DECR", "GET", "GETDEL", "STRLEN", "TYPE", "PERSIST", "EXPIRETIME", "TTL")),
                     self._key()],
            lambda: [self._one(("MULTI", "EXEC", "EXEC", "DISCARD", "UNWATCH"))],
        )  # fmt: skip
        found: Command = self._one(kinds)()
        return found

    def choose(self, server: Server) -> int:
        """Return the connection that sends the next command; mostly the first."""
        return self._rng.randrange(10) // 8 % len(server)

    def _one(self, what: Sequence[Any]) -> Any:
        return self._rng.choice(what)

    def _key(self) -> Any:
        return self._one(KEYS)

    def _several(self) -> list[Any]:
        return [self._key() for _ in range(self._rng.randrange(4))]

    def _options(self, most: int, *words: str) -> list[Any]:
        found: list[Any] = []
        for _ in range(self._rng.randrange(most + 1)):
            word = self._one((*words, "FOO")) if self._rng.random() < 0.9 else self._one(words).lower()
            found += [word, self._one(TIMES)] if word.upper() in LIVES and self._rng.random() < 0.9 else [word]
        return found


def answer_of(connection: Any, command: Command) -> Any:
    connection.send_command(*command)
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return str(error)


def is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if isinstance(ours, int) and isinstance(theirs, int) and min(ours, theirs) > CLOSE:
        return abs(ours - theirs) <= CLOSE
    return str(ours) == str(theirs)


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    options = ["--port", str(port), "--databases", "1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen([require_tool("redis-server"), *options], stdout=subprocess.DEVNULL) as process:
        try:
            client = redis.Redis(port=port, retry=Retry(ConstantBackoff(0.05), 200))
            assert client.ping()
            client.close()
            yield port
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_answers_are_the_same(seed: int, theirs: int, tmp_path: Path) -> None:
    with writer(tmp_path, "--set", "resp.enabled=true", "--set", "resp.port=0") as one:
        servers: list[Server] = [
            tuple(CONNECTION(port=port) for _ in range(2)) for port in (one.daemon.port("resp_port"), theirs)
        ]
        generator, sent = Generator(seed), []
        for _ in range(COMMANDS):
            command = generator.command()
            place = generator.choose(servers[0])
            sent.append((place, command))
            ours, reference = (answer_of(server[place], command) for server in servers)
            assert is_same(ours, reference), (ours, reference, sent[-40:])
        for server in servers:
            for connection in server:
                connection.disconnect()
