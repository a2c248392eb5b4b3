"""The stream reader as Spark's driver calls it, without Spark."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructType

import shale
from shale_spark.changes.options import ChangesOptions
from shale_spark.changes.reader import ChangesReader

ALL = ReadAllAvailable()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


@pytest.fixture
def readers(url: str) -> Iterator[list[ChangesReader]]:
    """Return two runs of one query."""
    options = ChangesOptions.parse({"url": url, "changes": "latest"})
    made = [ChangesReader(options, StructType().add("key", BinaryType())) for _ in range(2)]
    yield made
    for reader in made:
        reader.stop()


def write(url: str, key: bytes) -> None:
    async def main() -> None:
        async with shale.Db.open(url) as db:
            await db.put(key, b"value")

    anyio.run(main)


def keys(reader: ChangesReader, start: dict[str, int], end: dict[str, int]) -> list[bytes]:
    parts = reader.partitions(start, end)
    return [key for part in parts for batch in reader.read(part) for key in batch.column("key").to_pylist()]


@pytest.mark.slow
def test_latest_is_where_the_first_run_began(url: str, readers: list[ChangesReader]) -> None:
    """Spark requests the start when it plans the first batch, when it runs it, and when it runs it again."""
    first, second = readers
    write(url, b"before")
    begun = first.initialOffset()
    write(url, b"after")
    assert first.initialOffset() == begun
    stored = first.latestOffset(begun, ALL)
    assert keys(first, begun, stored) == []
    write(url, b"later")
    assert keys(second, second.initialOffset(), stored) == [], "the first batch, after the driver died in it"
    assert keys(second, stored, second.latestOffset(stored, ALL)) == [b"after", b"later"]


def test_a_run_continues_after_its_first_batch(url: str, readers: list[ChangesReader]) -> None:
    write(url, b"before")
    reader = readers[0]
    begun = reader.initialOffset()
    assert reader.latestOffset(begun, ALL) == begun
    write(url, b"after")
    assert keys(reader, begun, reader.latestOffset(begun, ALL)) == [b"after"]
