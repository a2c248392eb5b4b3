"""A database with a writer, readers, a compactor and a collector under faults."""

from typing import Any

import anyio

import shale
from shale.errors import (
    FencedError,
    InvalidClockTick,
    InvalidDbState,
    LatestRecordMissing,
    ObjectUpdateTimeout,
    ShaleError,
)
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.background_actors import pinner
from tests.simulation.compactor.lsm import compactor
from tests.simulation.row_model import RowModel
from tests.simulation.writer.writers import PAIR, final_rows, writer

EXPECTED = (FencedError, ObjectUpdateTimeout, LatestRecordMissing)
"""How a process may end: fenced by its successor, tired of conflicts, or started before there was a database."""


async def collector(process: SimProcess, *, min_age_s: float, interval_s: float = 30.0) -> None:
    """Run all tasks except the one for fences, which is off by default."""
    task = TaskOptions(interval_s=interval_s, min_age_s=min_age_s)
    options = GcOptions(manifest=task, wal=task, compacted=task, compactions=task, detach=task)
    while True:
        try:
            await Collector(process.store, "db", process.env, options, process.metrics).run()
        except ShaleError as error:
            raise InvalidDbState(f"the collector ended: {error}") from error
        await anyio.sleep(interval_s)  # there was no database yet


async def reader(process: SimProcess, seen: list[int], *, interval_s: float = 60.0) -> None:
    """Follow the database under a lease; check that batches are complete and states never go back."""
    settings: dict[str, Any] = {"manifest_poll_interval": "5s", "checkpoint_lifetime": "60s"}
    while True:
        try:
            async with shale.DbReader.open(
                "db", store=process.connection, env=process.env, metrics=process.metrics, open_timeout=None, **settings
            ) as db:
                while True:
                    rows = {row.key: row.value async for row in db.scan()}
                    assert rows.get(PAIR[0]) == rows.get(PAIR[1]), "half a batch"
                    seen.append(len(rows))
                    await anyio.sleep(process.rng.uniform(0, interval_s))
        except ShaleError:
            await anyio.sleep(interval_s)  # no database yet, or a sleep that outlasted the lease


def everything(seed: int, options: SimOptions | None = None, *, min_age_s: float = 300.0, minutes: int = 30) -> str:
    """Run one database with all daemons; return the history's fingerprint."""
    model, seen = RowModel(), list[int]()
    with Simulation(seed, options=options, swarm=True) as sim:
        sim.watch(DatabaseInvariants("db"))
        sim.restart_killed(30.0)
        for number in range(sim.rng.randint(1, 3)):
            sim.at(
                number * sim.rng.uniform(0, 400),
                lambda name=f"w{number}": sim.start(
                    writer, name, role="writer", model=model, rounds=60, pause_s=20.0, close="memtable"
                ),
            )
        sim.at(sim.rng.uniform(1, 60), lambda: sim.start(compactor, "c", role="compactor"))
        sim.at(sim.rng.uniform(1, 60), lambda: sim.start(collector, "gc", role="gc", min_age_s=min_age_s))
        sim.at(sim.rng.uniform(1, 60), lambda: sim.start(reader, "r", role="reader", seen=seen))
        sim.start(pinner, "a", role="admin", rounds=20, pause_s=60.0)
        if sim.rng.random() < 0.3:
            sim.at(sim.rng.uniform(60, 900), lambda: sim.start(compactor, "c2", role="compactor"))
        sim.run(minutes=minutes)
        sim.heal()
        sim.run(minutes=10)
        sim.kill_all()
        model.check(final_rows(sim))
        # A writer whose clock lags its predecessor's waits for ten seconds and then refuses to write.
        sim.check_errors(*EXPECTED, *((InvalidClockTick,) if sim.options.skew_ms else ()))
        return sim.history.fingerprint
