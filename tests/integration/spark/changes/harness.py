"""Helpers for tests of the change stream: writers, queries that store their batches in files, and the WAL."""

import json
from pathlib import Path
from typing import Any

import anyio
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import shale
from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.errors import FencedError
from shale.kernels.rows import entries_from_rows
from shale.types import FLAG_MERGE
from shale_spark.changes.dataframe import changes

Change = tuple[int, int, str, str, str | None]
"""wal_id, seq, op, key and value."""


def write(url: str, number: int, rounds: int = 8, *, leaves: bool = True) -> None:
    """Write as a new writer: puts, deletes, batches and flushes; without ``leaves`` it is fenced at the end."""

    async def main() -> None:
        async with shale.Db.open(url, flush_interval="5ms", l0_max_ssts=1000, l0_max_ssts_per_key=1000) as db:
            for turn in range(rounds):
                await db.put(f"w{number}/{turn}".encode(), b"x" * (turn * 37))
                await db.delete(f"w{number - 1}/{turn}".encode())
                batch = shale.WriteBatch()
                for part in range(3):
                    batch.put(f"both/{part}".encode(), f"{number}/{turn}".encode())
                await db.write(batch)
                if turn % 3 == 0:
                    await db.flush("wal" if turn % 2 else "memtable")
            if not leaves:
                await _fence(url)

    try:
        anyio.run(main)
    except FencedError:
        assert not leaves


async def _fence(url: str) -> None:
    async with shale.Db.open(url) as newer:
        await (await newer.put(b"newer", b"here")).durable()


def log_of(folder: Path) -> list[Change]:
    """Return every change in the WAL of the database in a folder, in order."""

    async def main() -> list[Change]:
        found: list[Change] = []
        for path in sorted((folder / "wal").glob("*.sst")):
            rows = await decode_wal_file(memoryview(path.read_bytes()), str(path), Env.system())
            for entry in entries_from_rows(rows):
                op = "delete" if entry.is_tombstone else "merge" if entry.flags & FLAG_MERGE else "put"
                value = None if op == "delete" else entry.value.hex()
                found.append((int(path.stem), entry.seq, op, entry.key.hex(), value))
        return found

    return anyio.run(main)


def changes_of(frame: DataFrame) -> list[Change]:
    """Return the changes of one micro-batch, in the order of its partitions."""
    return [
        (row.wal_id, row.seq, row.op, row.key.hex(), None if row.value is None else row.value.hex())
        for row in frame.collect()
    ]


class Sink:
    """A sink that writes each batch to a file, again if the batch is repeated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, frame: DataFrame, number: int) -> None:
        """Write one micro-batch."""
        part = self._folder / f"{number:09}.part"
        part.write_text(json.dumps(changes_of(frame)))
        part.rename(self._folder / f"{number:09}.json")

    def files(self) -> list[Path]:
        """Return the complete batches, in order."""
        return sorted(self._folder.glob("*.json"))

    def taken(self) -> list[Change]:
        """Return all changes of all batches."""
        batches = [json.loads(path.read_text()) for path in self.files()]
        return [tuple(change) for batch in batches for change in batch]


def follow(spark: SparkSession, url: str, folder: Path, **options: Any) -> StreamingQuery:
    """Run a query that ends after the available changes."""
    stream = changes(spark, url, **{"start": "earliest", **options})
    sink = Sink(folder / "batches")
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(sink.take)
    return writer.trigger(availableNow=True).start()
