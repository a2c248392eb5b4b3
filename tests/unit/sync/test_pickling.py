"""Which objects can be pickled, and the errors of those that cannot."""

import asyncio
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest

import shale
from shale import sync


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = tmp_path.as_uri() + "/db"
    with sync.Db.open(url) as db, db.batch() as batch:
        for number in range(100):
            batch.put(b"%02d" % number, b"old")
    return url


def total(task: tuple[sync.DbReader, bytes]) -> tuple[int, set[bytes]]:
    """Read the rows of a part as an executor does, with a reader from the task."""
    reader, prefix = task
    with reader:
        rows = list(reader.scan(prefix=prefix))
        return len(rows), {row.value for row in rows}


async def total_later(opening: Any, prefix: bytes) -> int:
    async with opening as reader:
        return len([row async for row in reader.scan(prefix=prefix)])


def total_of_opening(task: tuple[Any, bytes]) -> int:
    return asyncio.run(total_later(*task))


def test_blocking_readers_travel_to_other_processes_and_show_the_same_state(url: str) -> None:
    with sync.DbReader.open(url) as reader:
        with sync.Db.open(url) as db:
            db.put(b"00", b"new").durable()
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.map(total, [(reader, b"0"), (reader, b"1")])
    assert found == [(10, {b"old"}), (10, {b"old"})]


def test_asynchronous_readers_travel_too(url: str) -> None:
    async def run() -> list[int]:
        async with shale.DbReader.open(url) as reader:
            tasks = [(reader, b"0"), (reader, b"9")]
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                return await asyncio.to_thread(pool.map, total_of_opening, tasks)

    assert asyncio.run(run()) == [10, 10]


def test_closures_of_spark_take_a_reader_along(url: str) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    with sync.DbReader.open(url) as reader:
        task = cloudpickle.dumps(lambda key: (key, reader.get(key)))
        assert pickle.loads(task)(b"07") == (b"07", b"old")


@pytest.mark.slow
def test_what_belongs_to_its_process_says_so(url: str) -> None:
    with sync.DbReader.open(url, follow_latest=True) as reader, sync.Db.open(url) as db:
        for thing in (db, db.snapshot(), db.snapshot(durable=True), db.transaction(), reader.scan()):
            with pytest.raises(TypeError, match="cannot be pickled: pickle a DbReader"):
                pickle.dumps(thing)
        with pytest.raises(TypeError, match="cannot be pickled: its seq can"):
            pickle.dumps(db.put(b"k", b"v"))


def test_what_belongs_to_its_loop_says_so(url: str) -> None:
    async def main() -> None:
        async with shale.DbReader.open(url, follow_latest=True) as reader, shale.Db.open(url) as db:
            snapshots = (await db.snapshot(), await db.snapshot(durable=True), await db.transaction())
            for thing in (db, *snapshots, reader.scan()):
                with pytest.raises(TypeError, match="cannot be pickled: pickle a DbReader"):
                    pickle.dumps(thing)
            with pytest.raises(TypeError, match="cannot be pickled: its seq can"):
                pickle.dumps(await db.put(b"k", b"v"))

    asyncio.run(main())
