"""Processes that write to a database, and readers whose rows are checked against every write."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio

from shale.engine.db_reader import DbReader
from shale.errors import CheckpointMissing, CorruptionError
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.sst.options import SstOptions
from shale.testing.simulation import SimProcess
from shale.types import Row
from shale_compactor.execution.options import ExecutorOptions
from tests.simulation.compactor import lsm
from tests.simulation.writer.writers import open_db

if TYPE_CHECKING:
    from shale.engine.open_context import OpenContext

EAGER = GcOptions(compacted=TaskOptions(interval_s=5.0, min_age_s=0.0), wal=TaskOptions(interval_s=5.0, min_age_s=0.0))
"""Twice per poll of a reader, all it can take, but not what a job has not committed yet.

Source: docs/reference/protocol.md 8.2.
"""
POLL_S = 10.0
LIFETIME_S = 60.0


@dataclass
class ExpectedState:
    """Every write in order: ``(seq, key, value)``."""

    writes: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    durable_seq: int = 0
    scans: int = 0

    def state_at(self, seq: int) -> dict[bytes, bytes]:
        return {key: value for written, key, value in self.writes if written <= seq}

    def check(self, rows: list[Row], *, at_least: int = 0) -> int:
        """Check that the rows are the state after one of the writes, not older than before; return its number."""
        self.scans += 1
        seen = max((row.seq for row in rows), default=0)
        assert seen >= at_least, f"went back from {at_least} to {seen}"
        found = {row.key: row.value for row in rows}
        assert len(found) == len(rows), "a key twice"
        assert found == self.state_at(seen), f"a gap below {seen}"
        return seen


async def writer(process: SimProcess, expected_state: ExpectedState, *, rounds: int = 60, pause_s: float = 3.0) -> None:
    """Write numbered rows, with flushes of both kinds."""
    rng = process.rng
    async with open_db(process) as db:
        for number in range(rounds):
            key, value = b"key-%02d" % rng.randrange(12), b"%d/" % number + bytes(rng.randrange(40))
            handle = await db.put(key, value)
            expected_state.writes.append((handle.seq, key, value))
            draw = rng.random()
            if draw < 0.5:
                await db.flush("wal" if draw < 0.35 else "memtable")
            await anyio.sleep(rng.uniform(0, pause_s))
            expected_state.durable_seq = db.status.durable_seq
        await db.flush("wal")
        expected_state.durable_seq = db.status.durable_seq


def open_reader(process: SimProcess, **options: Any) -> "OpenContext[DbReader]":
    settings: dict[str, Any] = {"manifest_poll_interval": POLL_S, "checkpoint_lifetime": LIFETIME_S, **options}
    settings = {"open_timeout": None} | settings  # virtual time passes quickly, and faults last long
    return DbReader.open("db", store=process.connection, env=process.env, metrics=process.metrics, **settings)


async def last_reader(process: SimProcess, **options: Any) -> list[Row]:
    async with open_reader(process, **options) as db:
        return [row async for row in db.scan()]


async def until_created(process: SimProcess) -> None:
    manifests = manifests_of(process)
    while await manifests.try_read_latest() is None:  # noqa: ASYNC110 - a store has no events
        await anyio.sleep(1)


def manifests_of(process: SimProcess) -> ManifestStore:
    return ManifestStore(process.store, "db", process.env, process.metrics)


async def until_it_works_again(process: SimProcess, expected_state: ExpectedState) -> int:
    """Allow errors for a while, but no wrong rows; return the number of scans after the last error."""
    await until_created(process)
    seen = good = 0
    async with open_reader(process) as db:
        for _ in range(60):
            try:
                seen = expected_state.check([row async for row in db.scan()], at_least=seen)
                good += 1
            except (CheckpointMissing, CorruptionError):
                good = 0
            await anyio.sleep(process.rng.uniform(0, POLL_S))
        assert good >= 10, good
        assert db.problem is None
    return good


COMPACTION = replace(
    lsm.OPTIONS,
    coordinator=replace(lsm.OPTIONS.coordinator, checkpoint_lifetime_s=30.0),
    executor=ExecutorOptions(sst=SstOptions(), max_sst_size_bytes=100_000, max_subcompactions=1),
)
