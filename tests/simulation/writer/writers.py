"""Simulated writers: real ``Db`` handles whose callers record their calls in a ``RowModel``."""

from typing import Any

import anyio

import shale
from shale.errors import ShaleError
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from tests.simulation.row_model import RowModel, Told

PAIR = (b"pair-a", b"pair-b")
SMALL: dict[str, Any] = {
    "l0_sst_size_bytes": 1500,
    "max_unflushed_bytes": 40_000,
    "l0_max_ssts": 1000,
    "l0_max_ssts_per_key": 1000,
    # Simulated faults last longer than the time that a user waits.
    "open_timeout": None,
}


def open_db(process: SimProcess, **settings: Any) -> Any:
    """Open a ``Db`` over the network of the process; ``connect`` adds the retry layer."""
    return shale.Db.open("db", store=process.connection, env=process.env, metrics=process.metrics, **SMALL | settings)


async def put(db: shale.Db, model: RowModel, writer: str, key: bytes, value: bytes | None) -> int:
    """Write and record one row; return its sequence number."""
    attempt = model.attempt(writer, key, value)
    try:
        handle = await (db.delete(key) if value is None else db.put(key, value))
    except ShaleError:
        attempt.told = Told.FAILED
        raise
    attempt.seq = handle.seq
    return handle.seq


async def put_pair(db: shale.Db, model: RowModel, writer: str, value: bytes) -> int:
    """Write one batch of two rows that are always visible together."""
    attempts = [model.attempt(writer, key, value) for key in PAIR]
    try:
        batch = shale.WriteBatch()
        for attempt in attempts:
            batch.put(attempt.key, value)
        handle = await db.write(batch)
    except ShaleError:
        for attempt in attempts:
            attempt.told = Told.FAILED
        raise
    for attempt in attempts:
        attempt.seq = handle.seq
    return handle.seq


async def writer(
    process: SimProcess,
    model: RowModel,
    *,
    rounds: int = 30,
    pause_s: float = 0.2,
    close: str = "memtable",
    **settings: Any,
) -> None:
    """Open, write for a while (single rows, deletes, batches, flushes of both kinds), close.

    Acknowledgements are booked the moment they are given.
    """
    rng = process.rng
    async with open_db(process, **settings) as db:
        for number in range(rounds):
            value = b"%s/%d/" % (process.name.encode(), number) + bytes(rng.randrange(80))
            key = b"key-%d" % rng.randrange(12)
            draw = rng.random()
            if draw < 0.2:
                await put_pair(db, model, process.name, value)
            else:
                await put(db, model, process.name, key, None if draw < 0.3 else value)
            draw = rng.random()
            if draw < 0.3:
                await db.flush("wal")
            elif draw < 0.4:
                await db.flush("memtable")
            else:
                await anyio.sleep(rng.uniform(0, pause_s))
            model.durable_through(process.name, db.status.durable_seq)
        last = db.status.last_seq
        await db.close(close)
        if close != "none":
            model.durable_through(process.name, last)


async def reader_of_all(process: SimProcess, **settings: Any) -> dict[bytes, bytes]:
    """Open as the next writer and read all rows."""
    async with open_db(process, **settings) as db:
        return {row.key: row.value async for row in db.scan()}


def final_rows(sim: Simulation, **settings: Any) -> dict[bytes, bytes]:
    """Return the rows of the next writer after all faults."""
    sim.heal()
    sim.run(hours=3)
    process = sim.start(reader_of_all, "last", role="writer", **settings)
    sim.run(hours=1)
    assert process.error is None, process.error
    rows: dict[bytes, bytes] = process.result
    assert rows.get(PAIR[0]) == rows.get(PAIR[1]), "half a batch"
    return rows


def wal_ids(sim: Simulation) -> list[int]:
    """Return the WAL files that a reader of the simulated store finds."""
    return sorted(int(key[-24:-4]) for key in sim.stored if key.startswith("db/wal/"))
