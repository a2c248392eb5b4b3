"""Cloning with a separate WAL store: its rows are found, copied and counted there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.errors import InvalidDbState
from shale.format.names import wal_key, wal_prefix
from shale.store.memory import MemoryStore

ROWS = {b"a": b"in L0", b"m": b"in the log", b"z": b"in the log, too"}


class Harness:
    """A store with the database ``p``, whose WAL is in another store."""

    def __init__(self) -> None:
        self.store, self.apart = MemoryStore(), MemoryStore()

    async def filled(self) -> "Harness":
        db = await shale.Db.open("p", store=self.store, wal_store=self.apart, flush_interval=0)
        for number, (key, value) in enumerate(ROWS.items()):
            await (await db.put(key, value)).durable()
            if not number:
                await db.flush("memtable")
        await db.close(flush="wal")
        return self

    @asynccontextmanager
    async def clones(self, path: str, *, named: bool = True) -> AsyncIterator[Any]:
        async with shale.Admin(path, store=self.store, wal_store=self.apart if named else None) as admin:
            yield admin.clones

    async def rows(self, path: str) -> dict[bytes, bytes]:
        async with shale.Db.open(path, store=self.store, wal_store=self.apart, create_if_missing=False) as db:
            return {row.key: row.value async for row in db.scan()}


def with_harness(scenario: Callable[[Harness], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def main() -> None:
            await scenario(await Harness().filled())

        anyio.run(main)

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@with_harness
async def test_rows_in_the_log_are_in_the_clone(harness: Harness) -> None:
    async with harness.clones("c") as clones:
        made = await clones.create("p")
    assert made.wal_files_copied >= 2
    assert await harness.store.list(wal_prefix("c")) == []
    assert len(await harness.apart.list(wal_prefix("c"))) == made.wal_files_copied
    assert await harness.rows("c") == ROWS


@pytest.mark.parametrize("end", [None, b"m"])
def test_an_unnamed_store_is_refused_before_anything_is_written(end: bytes | None) -> None:
    """Otherwise the incomplete clone would pin its source until it is destroyed."""

    async def main() -> None:
        harness = await Harness().filled()
        async with harness.clones("c", named=False) as clones:
            with pytest.raises(InvalidDbState, match=r"p/wal/0*\d\.sst does not exist.*name it with wal_store"):
                await clones.create(source("p", end=end))
        assert await harness.store.list("c/") == []
        async with harness.clones("c") as clones:
            if end is None:
                assert (await clones.create("p")).is_new

    anyio.run(main)


@with_harness
async def test_rows_in_the_log_can_be_cut_and_united(harness: Harness) -> None:
    async with shale.Db.open("q", store=harness.store, wal_store=harness.apart) as db:
        await db.put(b"zz", b"")
    async with harness.clones("c") as clones:
        await clones.create(source("p", end=b"n"))
    async with harness.clones("u") as clones:
        await clones.create("p", "q")
    assert await harness.apart.list(wal_prefix("c")) == await harness.apart.list(wal_prefix("u")) == []
    assert await harness.rows("c") == {key: value for key, value in ROWS.items() if key < b"n"}
    assert await harness.rows("u") == ROWS | {b"zz": b""}


@with_harness
async def test_files_after_those_of_the_manifest_are_counted(harness: Harness) -> None:
    db = await shale.Db.open("p", store=harness.store, wal_store=harness.apart, flush_interval=0)
    await (await db.put(b"b", b"later")).durable()
    async with harness.clones("c") as clones:
        with pytest.raises(InvalidDbState, match="holds 1 file of rows"):
            await clones.create("p")
        assert (await clones.create("p", allow_wal_gap=True)).wal_files_left_out == 1
    await db.close()


@with_harness
async def test_a_second_attempt_without_the_store_says_so(harness: Harness) -> None:
    """The first attempt left manifest 1 only."""
    async with harness.clones("c") as clones:
        await harness.apart.put(wal_key("c", 4), b"in the way")
        with pytest.raises(InvalidDbState, match="not a copy"):
            await clones.create("p")
        await harness.apart.delete(wal_key("c", 4))
    async with harness.clones("c", named=False) as clones:
        with pytest.raises(InvalidDbState, match="name it with wal_store"):
            await clones.create("p")
    async with harness.clones("c") as clones:
        assert (await clones.create("p")).is_new
    assert await harness.rows("c") == ROWS
