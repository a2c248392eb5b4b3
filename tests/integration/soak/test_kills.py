"""SIGKILL of any daemon at any time, under load: no acknowledged row is lost, none appears twice.

Three daemons work on one database while clients write batches through the writer.  Every round kills one of them at a
moment drawn by chance and starts it again.  The model keeps what was acknowledged, and what was sent without an answer.
"""

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import msgpack
import pytest

import shale
from tests.integration.daemons.running import Daemon
from tests.integration.soak.test_process_end import s3_environment
from tests.integration.store.servers import s3_server

ROUNDS = 3
"""One for each role."""
SOAK_ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
CLIENTS = 3
ROWS_PER_BATCH = 50
MIN_AGE = "3s"
STALENESS = "1s"

SETTINGS = {
    "shale_writer": {
        "flush_interval": "10ms",
        "l0_sst_size_bytes": "200KiB",
        "wal_stall_limit": STALENESS,
        "probe_max_staleness": STALENESS,
    },
    "shale_compactor": {
        "compactor_options.poll_interval": "100ms",
        "compactor_options.commit_compacted_interval": "50ms",
        "compactor_options.checkpoint_lifetime": "2s",
        "compactor_options.worker_heartbeat_timeout": "2s",
        "compactor_options.worker.heartbeat_interval": "500ms",
        "compactor_options.worker.compactions_poll_interval": "100ms",
        "compactor_options.worker.max_sst_size": "100KiB",
        "probe_max_staleness": STALENESS,
    },
    "shale_gc": {
        "probe_max_staleness": STALENESS,
        **{
            f"garbage_collector_options.{task}_options.{name}": value
            for task in ("manifest", "wal", "compacted", "compactions")
            for name, value in (("interval", "500ms"), ("min_age", MIN_AGE))
        },
    },
}


@dataclass
class Model:
    """What may be in the database; a key belongs to one client, so its writes are ordered."""

    acknowledged: dict[bytes, bytes] = field(default_factory=dict)
    unknown: dict[bytes, set[bytes]] = field(default_factory=dict)

    def sent(self, rows: list[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self.unknown.setdefault(key, set()).add(value)

    def answered(self, rows: list[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self.acknowledged[key] = value
            self.unknown[key] = set()

    def allows(self, key: bytes, value: bytes | None) -> bool:
        """Whether a reader may see this: the newest acknowledged value, or one sent after it without an answer."""
        return value == self.acknowledged.get(key) or value in self.unknown.get(key, ())


class Stack:
    """The three daemons; one of each role at a time."""

    def __init__(self, url: str, logs: Path, environment: dict[str, str]) -> None:
        self._url = url
        self._logs = logs
        self._environment = environment
        self._daemons: dict[str, Daemon] = {}

    def start(self, role: str) -> None:
        options = ["--url", self._url, "--set", "ready.grace=5s"]
        if role == "shale_writer":
            options += ["--port", "0"]
        if role == "shale_compactor":
            options += ["--take-over"]
        for name, value in SETTINGS[role].items():
            options += ["--set", f"{name}={value}"]
        number = len(list(self._logs.glob(f"{role}.*")))
        self._daemons[role] = Daemon(role, *options, log=self._logs / f"{role}.{number}", env=self._environment)

    def wait_until_ready(self, role: str) -> None:
        self._daemons[role].wait_for("daemon.ready")

    def kill(self, role: str) -> None:
        process = self._daemons[role].process
        assert process.poll() is None, f"{role} ended by itself with {process.returncode}: {self._daemons[role].log}"
        process.kill()
        process.wait()

    def stop_all(self) -> dict[str, int]:
        return {role: daemon.stop() for role, daemon in self._daemons.items()}

    def kill_all(self) -> None:
        for daemon in self._daemons.values():
            daemon.process.kill()
            daemon.process.wait()

    def try_write(self, rows: list[tuple[bytes, bytes]]) -> bool:
        """One durable batch; false without an answer that it is durable."""
        writer = self._daemons["shale_writer"]
        try:
            status, _, _ = writer.request(
                "POST",
                "/v1/batch",
                port=writer.port("port"),
                body=msgpack.packb({"ops": [("put", key, value) for key, value in rows]}),
                headers={"content-type": "application/msgpack"},
            )
        except (OSError, AssertionError, HTTPException):
            return False
        return status == 200


def write_until(stop: threading.Event, stack: Stack, model: Model, client: int) -> None:
    """One client: batch after batch over its own keys, until it is told to stop."""
    rng = random.Random(client)
    number = 0
    while not stop.is_set():
        number += 1
        keys = {b"c%d/%05d" % (client, rng.randrange(3_000)) for _ in range(ROWS_PER_BATCH)}
        rows = [(key, b"%d/%d/" % (client, number) + rng.randbytes(100)) for key in sorted(keys)]
        model.sent(rows)
        if stack.try_write(rows):
            model.answered(rows)
        else:
            stop.wait(0.05)


@contextlib.contextmanager
def clients(stack: Stack, models: list[Model]) -> Iterator[None]:
    stop = threading.Event()
    threads = [
        threading.Thread(target=write_until, args=(stop, stack, model, client)) for client, model in enumerate(models)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def kill_in_rounds(stack: Stack, models: list[Model], rounds: int) -> None:
    rng = random.Random(rounds)
    with clients(stack, models):
        for number in range(rounds):
            # Every role has its turn, and the moment is left to chance.
            role = list(SETTINGS)[number % len(SETTINGS)]
            time.sleep(rng.uniform(0.3, 1.2))
            stack.kill(role)
            stack.start(role)
            stack.wait_until_ready(role)
        time.sleep(1)


async def compare(url: str, models: list[Model], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    seen: dict[bytes, bytes] = {}
    repeated = 0
    async with shale.DbReader.open(url) as reader:
        async for row in reader.scan():
            repeated += row.key in seen
            seen[row.key] = row.value
    assert repeated == 0
    for model in models:
        wrong = [key for key in model.unknown if not model.allows(key, seen.pop(key, None))]
        assert not wrong, f"{len(wrong)} of {len(model.unknown)} keys, the first is {wrong[0]!r}"
    assert not seen, "rows that nobody wrote"
    assert sum(len(model.acknowledged) for model in models) > 1_000, "the load was too small to prove anything"


def survive(url: str, logs: Path, environment: dict[str, str], rounds: int) -> None:
    stack, models = Stack(url, logs, environment), [Model() for _ in range(CLIENTS)]
    try:
        for role in SETTINGS:
            stack.start(role)
            stack.wait_until_ready(role)
        kill_in_rounds(stack, models, rounds)
        assert set(stack.stop_all().values()) == {0}
    finally:
        stack.kill_all()
    asyncio.run(compare(url, models, environment))


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_on_a_directory(rounds: int, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    survive(f"file://{tmp_path}/store/db", logs, {}, rounds)


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_on_s3(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("kills") as server:
        environment = s3_environment(server)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        survive("s3://kills/db", tmp_path, environment, rounds)
