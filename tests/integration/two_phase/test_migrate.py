"""``shale cas migrate`` as a real process that is killed at its requests, both ways, on SQLite and PostgreSQL.

The database moves to two-phase creates and back.  Every move is killed at one request, before or after its effect,
and run again; after the kill exactly one mode can read the database, and all rows are there.
"""

import asyncio
import json
import os
import signal
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shale
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.connect import connect
from shale.store.options import StoreOptions
from shale.telemetry.metrics import Metrics
from tests.integration.gc.killing_proxy import Gate, Kill, Seen, gate_to
from tests.integration.store.database_servers import postgresql
from tests.integration.store.servers import s3_server
from tests.paths import PYTHONPATH
from tests.processes.forks import Fork, run

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.native_only("the test sets the mode of each process")

BUCKET, URL = "moves", "s3://moves/db"
KEYS = {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
MODES = ("native", "two-phase")
REFUSED = 2
KILLED = -9
MIDDLE = 0.6
"""Where a migration is killed in a short run, as a share of its requests."""


class _Victim:
    """A fork for the thread of the proxy; the test itself waits for the exit code."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.has_ended = threading.Event()

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> object:
        return self.has_ended.wait(timeout)


@dataclass
class Database:
    """A database on an S3 server behind a proxy that kills, and the records of its two-phase mode."""

    gate: Gate
    records_url: str
    folder: Path
    rows: dict[str, bytes] = field(default_factory=dict)

    def environment(self, mode: str) -> dict[str, str]:
        settings = {"SHALE_STORE__CAS": mode, "SHALE_STORE__TRANSACTIONAL_URL": self.records_url}
        paths = {"PYTHONPATH": PYTHONPATH, "PATH": os.environ["PATH"], "HOME": str(self.folder)}
        return {**paths, **KEYS, "AWS_ENDPOINT": self.gate.url, **(settings if mode == "two-phase" else {})}

    def command(self, mode: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command with the settings of a mode."""
        return run("shale_cli", *arguments, "-u", URL, env=self.environment(mode), folder=self.folder)

    def answer(self, mode: str, *arguments: str) -> Any:
        done = self.command(mode, *arguments)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def put(self, mode: str, key: str) -> None:
        self.answer(mode, "kv", "put", key, f"value of {key}")
        self.rows[key] = f"value of {key}".encode()

    def mode(self) -> str:
        """Return the only mode that can read the database; all rows must be there."""
        found = {}
        for mode in MODES:
            done = self.command(mode, "kv", "scan")
            if done.returncode == 0:
                lines = [json.loads(line) for line in done.stdout.splitlines()]
                found[mode] = {b64decode(line["key_b64"]).decode(): b64decode(line["value_b64"]) for line in lines}
            else:
                assert done.returncode == REFUSED, done.stderr.decode()
        assert len(found) == 1, f"the modes that can read the database: {sorted(found)}"
        mode, rows = found.popitem()
        assert rows == self.rows
        return mode

    def migrate(self, to: str, kill: Kill | None = None, number: int = 0) -> int:
        """Migrate; kill the process at a request.  Return its exit code, negative if it was killed."""

        def choose(seen: Seen) -> Kill | None:
            return kill if seen.number == number else None

        command = ("cas", "migrate", "--to", to, "--yes", "-u", URL)
        with (self.folder / "log").open("wb") as log, Path(os.devnull).open("rb") as null:
            process = Fork(
                "shale_cli", *command, env=self.environment("two-phase"), folder=self.folder, stdio=(null, log, log)
            )
            victim = _Victim(process.pid)
            self.gate.watch(victim, choose)
            code = process.wait(120)
            victim.has_ended.set()
            return code

    def move(self, to: str, kill: Kill, number: int) -> None:
        """Kill a migration at a request, look, and run it again."""
        before = self.mode()
        assert self.migrate(to, kill, number) == KILLED, (self.folder / "log").read_text()
        mode = self.mode()
        self.put(mode, f"{kill.value} {number} of {before}")
        assert self.migrate(to) == 0, (self.folder / "log").read_text()
        assert self.mode() == to
        status = self.answer("two-phase", "cas", "status")
        assert (status["uncommitted"], status["deleting"]) == (0, 0)
        assert (status["records"] > 0) == (to == "two-phase")
        self.put(to, f"after {kill.value} {number} of {before}")

    def requests(self, to: str) -> int:
        """Return how many requests a migration sends, by one that is not killed."""
        assert self.migrate(to) == 0, (self.folder / "log").read_text()
        return self.gate.count

    async def make(self) -> None:
        """Make a database with rows in SSTs and in the WAL, whose first versions and WAL files were collected."""
        config = {"endpoint": self.gate.upstream, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
        store = connect(f"s3://{BUCKET}", Env.system(), None, StoreOptions(config=config))
        for number in range(3):
            async with shale.Db.open("db", store=store) as db:
                for key in (f"row {number}/{each}" for each in range(20)):
                    await db.put(key.encode(), f"value of {key}".encode())
                    self.rows[key] = f"value of {key}".encode()
                await db.flush("memtable" if number < 2 else "wal")
                await db.close("wal")
        now = TaskOptions(min_age_s=0.0)
        options = GcOptions(manifest=now, wal=now, compacted=now, compactions=now)
        await Collector(store, "db", Env.system(), options, Metrics()).run_once()
        await store.aclose()


@contextmanager
def database(records_url: str, folder: Path) -> Iterator[Database]:
    with s3_server(BUCKET) as server, gate_to(server) as gate:
        found = Database(gate, records_url, folder)
        asyncio.run(found.make())
        found.answer("two-phase", "cas", "init")
        yield found


def move_to_and_fro(found: Database, *, is_long: bool) -> None:
    requests = {to: found.requests(to) for to in ("two-phase", "native")}
    assert min(requests.values()) >= 5, requests
    numbers = {to: range(count) if is_long else [int(MIDDLE * count)] for to, count in requests.items()}
    for kill in Kill if is_long else (Kill.AFTER,):
        for number in range(max(map(len, numbers.values()))):
            for to, chosen in numbers.items():
                if number < len(chosen):
                    found.move(to, kill, chosen[number])
                elif found.mode() != to:
                    assert found.migrate(to) == 0
    assert found.mode() == "native"


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


LENGTHS = pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.soak)])


@pytest.mark.slow
@LENGTHS
def test_with_sqlite(is_long: bool, tmp_path: Path) -> None:
    with database(f"sqlite://{tmp_path}/records.db", tmp_path) as found:
        move_to_and_fro(found, is_long=is_long)


@pytest.mark.slow
@LENGTHS
def test_with_postgresql(is_long: bool, tmp_path: Path, postgresql_url: str) -> None:
    with database(postgresql_url, tmp_path) as found:
        move_to_and_fro(found, is_long=is_long)
