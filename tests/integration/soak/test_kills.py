"""SIGKILL of any daemon at any time, under load: no acknowledged row is lost, none appears twice.

Four daemons work on one database while clients write batches through the writer.  Every round kills one of them at a
moment drawn by chance and starts it again.  The model keeps what was acknowledged, and what was sent without an answer.
"""

import asyncio
import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shale
from shale.store.options import StoreOptions
from shale.store.transactional.connect import open_transactional_store
from shale.types import CasMode
from tests.integration.soak.stack import SETTINGS, Stack
from tests.integration.store.database_servers import postgresql
from tests.integration.store.servers import s3_environment, s3_server
from tests.integration.store.versitygw import needs_versitygw, versitygw
from tests.paths import PYTHONPATH
from tests.processes.forks import run

CAS, RECORDS_URL = "SHALE_STORE__CAS", "SHALE_STORE__TRANSACTIONAL_URL"
ROUNDS = 4
"""One for each role."""
FEW_ROUNDS = 2
"""On a server of its own for commits; the same commits on SQLite survive a kill of every role."""
SOAK_ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
CLIENTS = 3
ROWS_PER_BATCH = 50


@dataclass
class Model:
    """The possible contents of the database; a key belongs to one client, so its writes are ordered."""

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
        """Return whether a reader may see this value: the newest acknowledged one, or a later unconfirmed one."""
        return value == self.acknowledged.get(key) or value in self.unknown.get(key, ())


def write_until(stop: threading.Event, stack: Stack, model: Model, client: int) -> None:
    """Run one client: write batches over its own keys until it is stopped."""
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
    options = StoreOptions(
        cas=CasMode(os.environ.get(CAS, CasMode.NATIVE)), transactional_url=os.environ.get(RECORDS_URL)
    )
    seen: dict[bytes, bytes] = {}
    repeated = 0
    async with shale.DbReader.open(url, store_options=options) as reader:
        async for row in reader.scan():
            repeated += row.key in seen
            seen[row.key] = row.value
    assert repeated == 0
    for model in models:
        wrong = [key for key in model.unknown if not model.allows(key, seen.pop(key, None))]
        assert not wrong, f"{len(wrong)} of {len(model.unknown)} keys, the first is {wrong[0]!r}"
    assert not seen, "rows that were never written"
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
    if os.environ.get(CAS) == CasMode.TWO_PHASE:
        assert_all_committed(url, logs)


def assert_all_committed(url: str, logs: Path) -> None:
    """Recover once, as a daemon would within a minute; then no record may be left that is not committed."""
    for command in ("recover", "status"):
        done = run("shale_cli", "cas", command, "-u", url, env={**os.environ, "PYTHONPATH": PYTHONPATH}, folder=logs)
        assert done.returncode == 0, done.stderr.decode()
    status = json.loads(done.stdout)
    assert (status["uncommitted"], status["deleting"]) == (0, 0)
    assert status["records"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_on_a_directory(rounds: int, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    survive(f"file://{tmp_path}/store/db", logs, {}, rounds)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_on_s3(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("kills") as server:
        environment = s3_environment(server)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        survive("s3://kills/db", tmp_path, environment, rounds)


@needs_versitygw
@pytest.mark.parametrize("rounds", [pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
@pytest.mark.native_only("the server of test_on_s3 ignores conditions, this one does not")
def test_on_versitygw(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with versitygw("kills", tmp_path / "objects") as server:
        environment = s3_environment(server)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        survive("s3://kills/db", tmp_path, environment, rounds)


async def prepared_records(url: str) -> dict[str, str]:
    """Create the tables; return the settings of daemons."""
    records = open_transactional_store(url)
    await records.create_schema()
    await records.aclose()
    return {CAS: CasMode.TWO_PHASE.value, RECORDS_URL: url}


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_with_two_phase_creates_and_sqlite(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    environment = asyncio.run(prepared_records(f"sqlite://{tmp_path}/records.db"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    survive(f"file://{tmp_path}/store/db", logs, environment, rounds)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [FEW_ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_with_two_phase_creates_and_postgresql(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The S3 server ignores conditions, as those do for which the mode is made."""
    with postgresql() as records_url, s3_server("kills", "--ignore-conditions") as server:
        environment = s3_environment(server) | asyncio.run(prepared_records(records_url))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        survive("s3://kills/db", tmp_path, environment, rounds)
