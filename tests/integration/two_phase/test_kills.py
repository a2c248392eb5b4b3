"""SIGKILL between every two steps of a create and of a deletion: nothing is lost, nothing stays uncommitted.

Each round is a process that kills itself after one request of one kind has taken effect (``killed_process``).  What
it left is met by recovery in two rounds of three, and by the next process alone in the others.  With parallel WAL
writes, several creates are under way when a process dies.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import shale
from shale.env import Env
from shale.errors import LatestRecordMissing
from shale.store.transactional.connect import open_transactional_store
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.store.two_phase.store import two_phase_of
from shale.telemetry.metrics import Metrics
from tests.integration.store.database_servers import postgresql
from tests.integration.two_phase.killed_process import COUNTER, ROWS, counter_of, open_two_phase, row_of
from tests.processes import forks

PROCESS = "tests.integration.two_phase.killed_process"
STEPS = {
    # A create: the staged object, its record, the copy, the record again, and the staged object once more.
    "put": 10,
    "insert": 8,
    "copy": 8,
    "set_committed": 8,
    "delete": 8,
    # A deletion.
    "raise_low_water_mark": 2,
    "set_deleted": 2,
    "delete_many": 2,
    "remove_deleted": 2,
}
"""How many requests of each kind most rounds have."""
ROUNDS = len(STEPS) + 1
SOAK_ROUNDS = int(os.environ.get("SHALE_TWO_PHASE_ROUNDS", "200"))
KILLED = -9
pytestmark = [
    pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)]),
    pytest.mark.parametrize("parallel", [1, 3]),
]


class Survivors:
    """The rows of all rounds: those that are durable, and those that may be there."""

    def __init__(self) -> None:
        self.durable: dict[bytes, bytes] = {}
        self.unknown: dict[bytes, bytes] = {}
        self.counter = b""

    def add(self, round_: int, durable: int, parallel: int) -> None:
        """Add a round, of which the first rows are durable; of the others, as many as the process sent may be."""
        sent = min(ROWS, durable + 1) if parallel == 1 else ROWS
        self.durable.update(row_of(round_, number) for number in range(durable))
        self.unknown.update(row_of(round_, number) for number in range(durable, sent))
        if durable:
            self.counter = counter_of(round_, durable - 1)

    def check(self, found: dict[bytes, bytes]) -> None:
        """Compare with what a reader finds."""
        assert found.pop(COUNTER, b"") >= self.counter, "the counter went back"
        lost = {key for key, value in self.durable.items() if found.get(key) != value}
        assert not lost, f"durable rows are lost: {sorted(lost)}"
        assert found.items() <= (self.durable | self.unknown).items(), "rows that were never written"


async def recover(folder: str, records_url: str) -> None:
    store = open_two_phase(folder, records_url)
    two_phase = two_phase_of(store)
    assert two_phase is not None
    result = await TwoPhaseRecovery(two_phase, Env.system(), Metrics()).recover(min_age_ms=-1)
    assert result.errors == {}
    assert await two_phase.records.unfinished("") == []
    await store.aclose()


async def read(folder: str, records_url: str) -> dict[bytes, bytes]:
    store = open_two_phase(folder, records_url)
    try:
        async with shale.DbReader.open("db", store=store) as reader:
            return {row.key: row.value async for row in reader.scan()}
    except LatestRecordMissing:
        return {}  # the first process died before it had made a database
    finally:
        await store.aclose()


async def create_schema(records_url: str) -> None:
    records = open_transactional_store(records_url)
    await records.create_schema()
    await records.aclose()


def survive(folder: Path, records_url: str, rounds: int, parallel: int) -> None:
    asyncio.run(create_schema(records_url))
    rng, rows, killed = random.Random(rounds), Survivors(), Counter[str]()
    for round_ in range(rounds):
        step = list(STEPS)[round_ % len(STEPS)]
        arguments = (str(folder), records_url, str(round_), step, str(rng.randrange(STEPS[step])), str(parallel))
        done = forks.run(PROCESS, *arguments, env=os.environ, folder=folder.parent)
        assert done.returncode in {KILLED, 0}, (arguments, done.returncode, done.stderr.decode())
        killed[step] += done.returncode == KILLED
        rows.add(round_, len(done.stdout.split()), parallel)
        if round_ % 3:
            asyncio.run(recover(str(folder), records_url))
        rows.check(asyncio.run(read(str(folder), records_url)))
    asyncio.run(recover(str(folder), records_url))
    assert all(killed[step] for step in STEPS), f"steps without a kill: {killed}"
    assert killed.total() >= 0.9 * rounds
    assert len(rows.durable) > rounds, "the processes did too little to prove anything"


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.mark.slow
def test_with_sqlite(rounds: int, parallel: int, tmp_path: Path) -> None:
    survive(tmp_path / "store", f"sqlite://{tmp_path}/records.db", rounds, parallel)


@pytest.mark.slow
def test_with_postgresql(rounds: int, parallel: int, tmp_path: Path, postgresql_url: str) -> None:
    async def empty() -> None:
        records = open_transactional_store(postgresql_url)
        await records.create_schema()
        await records.remove_all("")
        await records.aclose()

    asyncio.run(empty())
    survive(tmp_path / "store", postgresql_url, rounds, parallel)
