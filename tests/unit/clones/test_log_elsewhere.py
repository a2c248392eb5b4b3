"""Cloning where the WAL has a store of its own: rows in it are found, copied and counted there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.errors import InvalidCloneSourceWithWal, InvalidDbState
from shale.format.names import wal_key, wal_prefix
from shale.store.memory import MemoryStore

ROWS = {b"a": b"in L0", b"m": b"in the log", b"z": b"in the log, too"}


class House:
    """A store with the database ``p``, whose log is apart."""

    def __init__(self) -> None:
        self.store, self.apart = MemoryStore(), MemoryStore()

    async def filled(self) -> "House":
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


def housed(story: Callable[[House], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def main() -> None:
            await story(await House().filled())

        anyio.run(main)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@housed
async def test_rows_in_the_log_are_in_the_clone(house: House) -> None:
    async with house.clones("c") as clones:
        made = await clones.create("p", require_complete=True)
    assert made.wal_files_copied >= 2
    assert await house.store.list(wal_prefix("c")) == []
    assert len(await house.apart.list(wal_prefix("c"))) == made.wal_files_copied
    assert await house.rows("c") == ROWS


@pytest.mark.parametrize("end", [None, b"m"])
def test_a_store_that_nobody_named_is_asked_for_before_anything_is_begun(end: bytes | None) -> None:
    """Otherwise the half-built clone would have to be destroyed, and hold its source until then."""

    async def main() -> None:
        house = await House().filled()
        async with house.clones("c", named=False) as clones:
            with pytest.raises(InvalidDbState, match=r"p/wal/0*\d\.sst is not there.*name it with wal_store"):
                await clones.create(source("p", end=end))
        assert await house.store.list("c/") == []
        async with house.clones("c") as clones:
            if end is None:
                assert (await clones.create("p")).is_new

    anyio.run(main)


@housed
async def test_rows_in_the_log_can_be_neither_cut_nor_united(house: House) -> None:
    async with shale.Db.open("q", store=house.store, wal_store=house.apart) as db:
        await db.put(b"zz", b"")
    async with house.clones("c") as clones:
        with pytest.raises(InvalidCloneSourceWithWal, match="p/wal/"):
            await clones.create(source("p", end=b"n"))
        with pytest.raises(InvalidCloneSourceWithWal, match="p/wal/"):
            await clones.create("p", "q")
    assert await house.store.list("c/") == []


@housed
async def test_files_behind_what_the_manifest_knows_are_counted(house: House) -> None:
    db = await shale.Db.open("p", store=house.store, wal_store=house.apart, flush_interval=0)
    await (await db.put(b"b", b"behind")).durable()
    async with house.clones("c") as clones:
        with pytest.raises(InvalidDbState, match="holds 1 file of rows"):
            await clones.create("p", require_complete=True)
        assert (await clones.create("p")).wal_files_left_out == 1
    await db.close()


@housed
async def test_a_second_attempt_without_the_store_says_so(house: House) -> None:
    """Manifest 1 is all that the first attempt has left."""
    async with house.clones("c") as clones:
        await house.apart.put(wal_key("c", 4), b"in the way")
        with pytest.raises(InvalidDbState, match="not a copy"):
            await clones.create("p")
        await house.apart.delete(wal_key("c", 4))
    async with house.clones("c", named=False) as clones:
        with pytest.raises(InvalidDbState, match="name it with wal_store"):
            await clones.create("p")
    async with house.clones("c") as clones:
        assert (await clones.create("p")).is_new
    assert await house.rows("c") == ROWS
