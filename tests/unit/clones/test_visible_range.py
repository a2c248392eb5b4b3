"""A projected clone keeps to its range without being told (docs/reference/protocol.md 11)."""

from contextlib import suppress
from typing import Any

import pytest

import shale
from shale.admin.clones import source
from shale.errors import InvalidDbState, InvalidRequestError
from shale.protocol.visible_range import read_visible_range
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, KeyRange
from tests.unit.backup.databases import admin, copied, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore
from tests.unit.clones.test_clone import Harness, with_harness

LEFT = KeyRange.half_open(None, b"m")


async def made(harness: Harness, path: str, *sources: Any, **options: Any) -> KeyRange | None:
    """Create a clone; return the range that is stored with it."""
    async with harness.admin(path) as clones:
        await clones.create(*sources, **options)
    return await read_visible_range(harness.store, path)


@with_harness
async def test_writes_outside_and_reads_wholly_outside_are_refused(harness: Harness) -> None:
    assert await made(harness, "left", source("p", end=b"m")) == LEFT
    async with shale.Db.open("left", store=harness.store) as db:
        await db.put(b"l", b"inside")
        for refused in (db.put(b"m", b""), db.delete(b"z"), db.get(b"m")):
            with pytest.raises(InvalidRequestError, match="outside"):
                await refused
        with pytest.raises(InvalidRequestError, match="outside"):
            [row async for row in db.scan(start=b"m")]
        assert [row.key async for row in db.scan()] == [b"a", b"b", b"l"]
        await db.flush("memtable")
    async with shale.DbReader.open("left", store=harness.store) as reader:
        assert await reader.get(b"l") == b"inside"
        with pytest.raises(InvalidRequestError, match="outside"):
            await reader.get(b"m")


@with_harness
async def test_the_range_outlives_the_ssts_that_show_it(harness: Harness) -> None:
    """Without them nothing in the manifest tells the range."""
    await made(harness, "empty", source("p", start=b"x"))
    assert not [*(await harness.load("empty")).value.views()]
    async with shale.Db.open("empty", store=harness.store) as db:
        with pytest.raises(InvalidRequestError, match="outside"):
            await db.put(b"a", b"")
    async with shale.Db.open("empty", store=harness.store, enforce_visible_range=EVERYTHING) as db:
        await db.put(b"a", b"told otherwise")


@with_harness
async def test_clones_of_clones_and_unions_have_the_ranges_of_their_sources(harness: Harness) -> None:
    assert await made(harness, "whole", "p") is None
    assert await made(harness, "left", source("p", end=b"m")) == LEFT
    assert await made(harness, "again", "left") == LEFT
    assert await made(harness, "part", source("left", start=b"b")) == KeyRange.half_open(b"b", b"m")
    right = KeyRange.half_open(b"m", b"t")
    assert await made(harness, "right", source("p", start=b"m", end=b"t")) == right
    assert await made(harness, "joined", "left", "right") == KeyRange.half_open(None, b"t")
    await harness.filled("q", b"u")
    assert await made(harness, "open", "left", "q") is None
    async with shale.Admin("joined", store=harness.store) as admin:
        assert (await admin.verify()).findings == ()
        await admin.destroy(confirm=True)
    assert await harness.store.list("joined/") == []


@with_harness
async def test_another_range_than_that_of_a_clone_is_refused(harness: Harness) -> None:
    ranges: list[dict[str, bytes]] = [{"end": b"m"}, {"start": b"m"}, {}]
    for number, keys in enumerate(ranges):
        path = f"clone{number}"
        shown = await made(harness, path, source("p", **keys))
        for other in ranges:
            if other == keys:
                assert await made(harness, path, source("p", **other)) == shown
            else:
                with pytest.raises(InvalidDbState, match=rf"the clone at {path} shows .*, not .*: destroy it"):
                    await made(harness, path, source("p", **other))
        assert await read_visible_range(harness.store, path) == shown


@pytest.mark.anyio
async def test_a_half_built_clone_is_completed_with_its_own_range_only() -> None:
    """It is interrupted at each of its requests; from its manifest on, another range is refused."""
    empty = MemoryStore(url="memory://main/")
    await write(empty, {"b": "1", "n": "2"})

    async def clone(store: ObjectStore, start: bytes, end: bytes) -> None:
        async with admin(store, "clone") as made:
            await made.clones.create(source("db", start=start, end=end))

    whole = Countdown()
    await clone(KillingStore(copied(empty), whole), b"a", b"m")
    refused = 0
    for at in range(1, whole.requests + 1):
        store = copied(empty)
        with suppress(Killed):
            await clone(KillingStore(store, Countdown(at, after_effect=True)), b"a", b"m")
        try:
            await clone(store, b"m", b"z")
        except InvalidDbState:
            refused += 1
            await clone(store, b"a", b"m")
            assert await rows(store, "clone") == {"b": "1"}
        else:
            assert await rows(store, "clone") == {"n": "2"}
    assert 0 < refused < whole.requests
