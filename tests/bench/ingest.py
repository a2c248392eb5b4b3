"""Rows in bulk: columns of Arrow, memtables to L0, and a WAL that is replayed, beside the peers in one run.

The peers take rows of Arrow as batches of Python objects, which are made before the clock starts.  Opening and
flushing are single calls of SlateDB's package: what they cost is work inside its Rust core.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
from slatedb import uniffi as slate

import shale
from tests.bench.line import BenchLine
from tests.bench.peers import VALUE, Rocks, Shale, Wheel, key_of
from tests.bench.place import Place

ROUNDS = 5
ROWS = 200_000
PEER_ROWS = {"slatedb": 2_000, "rocksdict": 50_000}
WAL_ROWS = 300_000
BATCH = 1_000
VALUE_BYTES = len(VALUE)

Times = dict[str, list[float]]


def arrow_table(keys: Sequence[bytes]) -> Any:
    """Rows of keys and 100-byte values, as ``pyarrow.Table``."""
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([VALUE] * len(keys), pa.binary())})


async def measure_ingest(directory: Path) -> dict[str, float]:
    """Microseconds per row until written and readable: of columns in key order and not, and of the peers' batches."""
    times: dict[str, Times] = {"sorted": {"shale": []}, "shuffled": {"shale": []}}
    peers = [Wheel(), Rocks()]
    for peer in peers:
        folder = directory / peer.name
        folder.mkdir()
        await peer.open(folder)
        times["sorted"][peer.name] = []
    ours = Shale()
    # No compactor runs here, and no flush should wait for one.
    ours.db = await shale.Db.open(f"file://{directory}/shale", l0_max_ssts=1000, l0_max_ssts_per_key=1000)
    await ours.db.write_arrow(arrow_table([key_of(number) for number in range(20_000)]))
    for number in range(ROUNDS):
        first = (number + 1) * 1_000_000
        shuffled = [key_of(each) for each in range(first, first + ROWS)]
        ordered = sorted(key_of(each) for each in range(first + ROWS, first + 2 * ROWS))
        for order, keys in (("sorted", ordered), ("shuffled", shuffled)):
            table = arrow_table(keys)
            start = perf_counter()
            handle = await ours.db.write_arrow(table)
            times[order]["shale"].append((perf_counter() - start) / ROWS)
            await handle.durable()
            await ours.flush()
        for peer in peers:
            keys = ordered[: PEER_ROWS[peer.name]]
            seconds = [await peer.batch(keys[start : start + BATCH]) for start in range(0, len(keys), BATCH)]
            times["sorted"][peer.name].append(sum(seconds) / len(keys))
            await peer.flush()
    for engine in (*peers, ours):
        await engine.close()
    result = {name: median(each) * 1e6 for name, each in times["sorted"].items()}
    return {**result, "shuffled": median(times["shuffled"]["shale"]) * 1e6}


async def open_ours(folder: Path) -> Any:
    """Open Shale without timed flushes of the WAL."""
    return await shale.Db.open(f"file://{folder}/db", flush_interval=None)


async def open_theirs(folder: Path) -> Any:
    """SlateDB the same way, without its compactor and collector."""
    settings = slate.Settings.default()
    for name, value in (("compactor_options", None), ("garbage_collector_options", None), ("flush_interval", "600s")):
        settings.set(name, json.dumps(value))
    builder = slate.DbBuilder(str(folder / "db").lstrip("/"), slate.ObjectStore.resolve("file:///"))
    builder.with_settings(settings)
    return await builder.build()


async def fill_wal(folder: Path) -> None:
    """A database that has its rows in ten WAL files and nowhere else."""
    db = await open_ours(folder)
    for first in range(0, WAL_ROWS, BATCH):
        async with db.batch() as batch:
            for number in range(first, first + BATCH):
                batch.put(key_of(number), VALUE)
        if (first + BATCH) % (WAL_ROWS // 10) == 0:
            await db.flush("wal")
    await db.close("wal")


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    start = perf_counter()
    result = await work
    return perf_counter() - start, result


async def measure_flush_and_open(directory: Path) -> dict[str, Times]:
    """Seconds to open copies of one database with rows in its WAL, and to bring these to L0, interleaved."""
    times: dict[str, Times] = {name: {"flush": [], "open": []} for name in ("ours", "theirs")}
    await fill_wal(directory / "source")
    for number in range(ROUNDS):
        for name in ("ours", "theirs"):
            folder = directory / f"{name}{number}"
            shutil.copytree(directory / "source", folder)
            seconds, db = await timed(open_ours(folder) if name == "ours" else open_theirs(folder))
            times[name]["open"].append(seconds)
            if name == "ours":
                seconds, _ = await timed(db.flush("memtable"))
                await db.close()
            else:
                wanted = slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)
                seconds, _ = await timed(db.flush_with_options(wanted))
                await db.shutdown()
            times[name]["flush"].append(seconds)
            shutil.rmtree(folder)
    return times


async def measure() -> tuple[dict[str, float], dict[str, Times]]:
    """Everything."""
    with tempfile.TemporaryDirectory(dir=Place.memory().folder) as directory:
        return await measure_ingest(Path(directory)), await measure_flush_and_open(Path(directory))


def ingest_lines() -> list[BenchLine]:
    """Lines against the wheel, RocksDB, and SlateDB's core."""
    ingest, bulk = asyncio.run(measure())
    lines = [
        BenchLine(
            name=f"Arrow ingest, {order}, per row | {peer}",
            ours=ingest["shale" if order == "sorted" else "shuffled"],
            reference=ingest[peer],
            unit="us",
            target=target if order == "sorted" else "for comparison",
        )
        for order in ("sorted", "shuffled")
        for peer, target in (("slatedb", ">= 350x wheel"), ("rocksdict", ">= 8x RocksDB"))
    ]
    for name, what, target in (
        ("flush", f"memtable of {WAL_ROWS} rows to L0", ">= 3x core"),
        ("open", f"open with {WAL_ROWS} rows in the WAL", ">= 6x core"),
    ):
        ours, theirs = ([seconds * 1e3 for seconds in bulk[each][name]] for each in ("ours", "theirs"))
        lines.append(BenchLine.of_rounds(f"{what} | slatedb core", ours, theirs, unit="ms", target=target))
    return lines
