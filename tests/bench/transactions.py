"""Transactions, snapshots and merges from Python, against the wheel, interleaved in one run."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from slatedb import uniffi as slate

import shale
from tests.bench.line import BenchLine
from tests.bench.peers import key_of

ROUNDS = 5
COUNTS = {"shale": 3_000, "slatedb": 300}
OPERANDS = 100
VALUE = b"v" * 100
ONE = (1).to_bytes(8, "little")


class Sum(slate.MergeOperator):
    """What ``int_add`` does, for the wheel."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        total = int.from_bytes(existing_value or b"", "little") + int.from_bytes(operand, "little")
        return total.to_bytes(8, "little")


async def our_transaction(db: Any, number: int) -> None:
    async with db.transaction("serializable") as tx:
        await tx.get(key_of(number))
        tx.put(key_of(number), VALUE)


async def their_transaction(db: Any, number: int) -> None:
    tx = await db.begin(slate.IsolationLevel.SERIALIZABLE_SNAPSHOT)
    await tx.get(key_of(number))
    await tx.put(key_of(number), VALUE)
    await tx.commit()


async def our_snapshot(db: Any, number: int) -> None:
    async with db.snapshot() as snapshot:
        await snapshot.get(key_of(number))


async def their_snapshot(db: Any, number: int) -> None:
    snapshot = await db.snapshot()
    await snapshot.get(key_of(number))


async def merge(db: Any, number: int) -> None:
    await db.merge(b"sum/%03d" % (number % 50), ONE)


async def get_counter(db: Any, _number: int) -> None:
    await db.get(b"counter")


Work = Callable[[Any, int], Awaitable[None]]
WORKS: Mapping[str, dict[str, Work]] = {
    "transaction of a get and a put, serializable": {"shale": our_transaction, "slatedb": their_transaction},
    "snapshot and a get": {"shale": our_snapshot, "slatedb": their_snapshot},
    "merge, not durable": {"shale": merge, "slatedb": merge},
    f"get of a counter with {OPERANDS} operands": {"shale": get_counter, "slatedb": get_counter},
}


async def timed(work: Work, db: Any, count: int) -> float:
    """Seconds per call."""
    start = perf_counter()
    for number in range(count):
        await work(db, number)
    return (perf_counter() - start) / count


async def measure() -> dict[str, dict[str, float]]:
    """Rounds over both engines in turn; medians."""
    times: dict[str, dict[str, list[float]]] = {name: {"shale": [], "slatedb": []} for name in WORKS}
    with tempfile.TemporaryDirectory() as directory:
        builder = slate.DbBuilder(str(Path(directory) / "theirs").lstrip("/"), slate.ObjectStore.resolve("file:///"))
        builder.with_merge_operator(Sum())
        ours = await shale.Db.open(f"file://{directory}/ours", merge_operator="int_add")
        dbs = {"shale": ours, "slatedb": await builder.build()}
        for db in dbs.values():
            for number in range(COUNTS["slatedb"]):
                await db.put(key_of(number), VALUE)
            for _ in range(OPERANDS):
                await db.merge(b"counter", ONE)
        for _ in range(ROUNDS):
            for name, works in WORKS.items():
                for peer, db in dbs.items():
                    times[name][peer].append(await timed(works[peer], db, COUNTS[peer]))
        await dbs["slatedb"].shutdown()
        await ours.close()
    return {name: {peer: median(each) for peer, each in of_name.items()} for name, of_name in times.items()}


def transaction_lines() -> list[BenchLine]:
    """One line for each call."""
    return [
        BenchLine(
            name=f"{name} | slatedb",
            ours=of_name["shale"] * 1e6,
            reference=of_name["slatedb"] * 1e6,
            unit="us",
            target="for comparison",
        )
        for name, of_name in asyncio.run(measure()).items()
    ]
