"""Cloning without faults: the traces of docs/protocol.md 10.6, and what is refused."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.env import Env, SystemClock
from shale.errors import (
    CheckpointMissing,
    CloneExternalDbMissing,
    CloneIncorrectExternalDbCheckpoint,
    CloneIncorrectFinalCheckpoint,
    DuplicatedCloneSourcePath,
    IdenticalClonePaths,
    InvalidDbState,
    InvalidRequestError,
    InvalidUnionSetEmpty,
    LatestRecordMissing,
)
from shale.format.names import destroyed_key, manifest_key
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.types import KeyRange


class UnevenClock(SystemClock):
    """Never says the same millisecond twice, so that what came first also looks older."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(self._last_ms + 1, super().now_ms())
        return self._last_ms


class House:
    """One store with databases in it."""

    def __init__(self) -> None:
        self.store = MemoryStore(UnevenClock())
        self.env = Env.system()

    def manifests(self, path: str) -> ManifestStore:
        return ManifestStore(self.store, path, self.env)

    async def load(self, path: str) -> StoredManifest:
        return await self.manifests(path).load()

    @asynccontextmanager
    async def admin(self, path: str) -> AsyncIterator[Any]:
        async with shale.Admin(path, store=self.store) as admin:
            yield admin.clones

    async def filled(self, path: str, *keys: bytes) -> "House":
        async with shale.Db.open(path, store=self.store) as db:
            for key in keys:
                await db.put(key, key)
        return self


def housed(story: Callable[[House], Awaitable[None]]) -> Callable[[], None]:
    """Run a test with a house that has one database, ``p``."""

    def test() -> None:
        async def main() -> None:
            await story(await House().filled("p", b"a", b"b"))

        anyio.run(main)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@housed
async def test_t10_a_which_versions_are_written(house: House) -> None:
    before = await house.load("p")
    async with house.admin("c") as clones:
        made = await clones.create("p")
    after = await house.load("p")
    assert after.id == before.id + 2
    ephemeral, final = after.value.checkpoints
    assert (ephemeral.manifest_id, final.manifest_id) == (before.id + 1, before.id + 1)
    assert (ephemeral.expire_s - ephemeral.create_s, final.expire_s) == (300, 0)
    first, second = [await house.manifests("c").read(version) for version in (1, 2)]
    assert first is not None
    assert second == replace(first, initialized=True)
    assert not first.initialized
    assert first.writer_epoch == before.value.writer_epoch
    (entry,) = first.external_dbs
    assert (entry.path, entry.source_checkpoint_id, entry.final_checkpoint_id) == ("p", ephemeral.id, final.id)
    assert (made.manifest_id, made.is_new, made.checkpoints) == (2, True, (ephemeral.id,))


@housed
async def test_t10_b_and_f_a_clone_of_a_clone(house: House) -> None:
    async with house.admin("c") as clones:
        await clones.create("p")
    async with house.admin("d") as clones:
        await clones.create("c")
    child, grandchild = (await house.load("c")).value, (await house.load("d")).value
    old, own = grandchild.external_dbs
    assert (old.path, old.source_checkpoint_id) == ("p", child.external_dbs[0].final_checkpoint_id)
    assert (own.path, own.sst_ids) == ("c", ())
    pins = [each.id for each in (await house.load("p")).value.checkpoints if not each.expire_s]
    assert pins == [child.external_dbs[0].final_checkpoint_id, old.final_checkpoint_id]
    async with shale.Db.open("d", store=house.store) as db:
        assert db.writer_epoch == grandchild.writer_epoch + 1
        assert await db.get(b"a") == b"a"


@housed
async def test_a_named_checkpoint(house: House) -> None:
    checkpoint = await create_checkpoint(await house.load("p"), house.env, lifetime_ms=None, name="nightly")
    await house.filled("p", b"later")
    async with house.admin("c") as clones:
        made = await clones.create(source("p", checkpoint="nightly"), require_complete=True)
        assert made.checkpoints == (checkpoint.id,)
        for named in (checkpoint.id, str(checkpoint.id), "nightly"):
            assert not (await clones.create(source("p", checkpoint=named))).is_new
    async with shale.DbReader.open("c", store=house.store) as reader:
        assert [row.key async for row in reader.scan()] == [b"a", b"b"]
    other = await create_checkpoint(await house.load("p"), house.env, lifetime_ms=None)
    async with house.admin("c") as clones:
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create(source("p", checkpoint=other.id))
    await release_checkpoints(await house.load("p"), [checkpoint.id, other.id])
    async with house.admin("c") as clones:
        assert not (await clones.create(source("p", checkpoint=str(checkpoint.id)))).is_new
    async with house.admin("e") as clones:
        for gone in (other.id, str(other.id), "nightly"):
            with pytest.raises(CheckpointMissing, match=str(gone)):
                await clones.create(source("p", checkpoint=gone))
        with pytest.raises(InvalidRequestError, match="neither the id of a checkpoint"):
            await clones.create(source("p", checkpoint=""))


@housed
async def test_paths_that_cannot_be(house: House) -> None:
    for path, sources, error in (
        ("p", ("p",), IdenticalClonePaths),
        ("p/inside", ("p",), IdenticalClonePaths),
        ("p", ("p/inside",), IdenticalClonePaths),
        ("c", ("p", "/p/"), DuplicatedCloneSourcePath),
        ("c", (), InvalidUnionSetEmpty),
        ("c", ("nowhere",), LatestRecordMissing),
        ("c", ("p", "nowhere"), LatestRecordMissing),
    ):
        async with house.admin(path) as clones:
            with pytest.raises(error) as caught:
                await clones.create(*sources)
        assert "nowhere" not in sources or "no database at nowhere" in str(caught.value)
    assert await house.store.list("c/") == []
    async with house.admin("pp") as clones:  # no part of "p", though it begins like it
        assert (await clones.create("p")).is_new


@housed
async def test_ranges_without_a_key(house: House) -> None:
    """Their ends were exchanged, most likely.  A source's own range and the common one may miss each other."""
    async with house.admin("c") as clones:
        for start, end in ((b"m", b"a"), (b"m", b"m")):
            with pytest.raises(InvalidRequestError, match="no key in the range b'm'"):
                await clones.create(source("p", start=start, end=end))
            with pytest.raises(InvalidRequestError, match="no key in the range b'm'"):
                await clones.create("p", keys=KeyRange.half_open(start, end))
        assert await house.store.list("c/") == []
        await clones.create(source("p", end=b"b"), keys=KeyRange.half_open(b"b", None))
    async with shale.DbReader.open("c", store=house.store) as reader:
        assert [row async for row in reader.scan()] == []


@housed
async def test_what_is_at_the_path_already(house: House) -> None:
    await house.filled("q", b"z")
    async with house.admin("q") as clones:
        with pytest.raises(CloneExternalDbMissing):
            await clones.create("p")
    async with house.admin("c") as clones:
        await clones.create("p")
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create("q")
    (entry,) = (await house.load("c")).value.external_dbs
    assert entry.final_checkpoint_id is not None
    await release_checkpoints(await house.load("p"), [entry.final_checkpoint_id])
    async with house.admin("c") as clones:
        with pytest.raises(CloneIncorrectFinalCheckpoint):
            await clones.create("p")


@pytest.mark.parametrize("marked", ["p", "c"])
def test_destroyed_databases_are_left_alone(marked: str) -> None:
    async def main() -> None:
        house = await House().filled("p", b"a")
        await house.store.put(destroyed_key(marked), b"{}")
        async with house.admin("c") as clones:
            with pytest.raises(InvalidDbState):
                await clones.create("p")

    anyio.run(main)


@housed
async def test_a_half_built_source(house: House) -> None:
    stored = await house.load("p")
    await stored.update(Versioned(stored.id, replace(stored.value, initialized=False)))
    async with house.admin("c") as clones:
        with pytest.raises(InvalidDbState, match="not initialised"):
            await clones.create("p")


@housed
async def test_a_union_of_halves_without_ssts_of_their_own_is_recognised(house: House) -> None:
    """The recipe of docs/clones.md: a second call finds that there is nothing left to do."""
    halves = {"left": source("p", end=b"b"), "right": source("p", start=b"b")}
    for path, half in halves.items():
        async with house.admin(path) as clones:
            await clones.create(half)
    await house.filled("other", b"z")
    async with house.admin("u") as clones:
        assert (await clones.create("left", "right")).checkpoints == (None, None)
        again = await clones.create("left", "right")
        assert (again.is_new, again.checkpoints) == (False, (None, None))
        for sources in (("left",), ("left", "other")):
            with pytest.raises(CloneIncorrectExternalDbCheckpoint):
                await clones.create(*sources)
        await house.filled("right", b"c")
        with pytest.raises(CloneIncorrectExternalDbCheckpoint, match="not made of left"):
            await clones.create("left", "right")


@housed
async def test_a_half_built_union_of_such_halves_is_finished(house: House) -> None:
    for path, half in {"left": source("p", end=b"b"), "right": source("p", start=b"b")}.items():
        async with house.admin(path) as clones:
            await clones.create(half)
    async with shale.Db.open("empty", store=house.store):
        pass
    async with house.admin("u") as clones:
        await clones.create("left", "right")
        finished = await house.load("u")
        (pin,) = [entry.final_checkpoint_id for entry in finished.value.external_dbs]
        assert pin is not None
        await house.store.delete(manifest_key("u", 2))
        await release_checkpoints(await house.load("p"), [pin])
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create("left", "empty")
        assert (await clones.create("left", "right")).is_new
    assert (await house.load("p")).value.checkpoint(pin) is not None
    async with shale.DbReader.open("u", store=house.store) as reader:
        assert [row.key async for row in reader.scan()] == [b"a", b"b"]


@housed
async def test_rows_behind_a_checkpoint_that_was_named(house: House) -> None:
    """Only those that were there when it was made; the second that it knows of is too coarse."""
    async with shale.Db.open("p", store=house.store, flush_interval=0) as db:
        await (await db.put(b"c", b"behind")).durable()
        checkpoint = await create_checkpoint(await house.load("p"), house.env, lifetime_ms=None)
        await (await db.put(b"d", b"later")).durable()
        async with house.admin("c") as clones:
            with pytest.raises(InvalidDbState, match="holds 1 file of rows"):
                await clones.create(source("p", checkpoint=checkpoint.id), require_complete=True)
            assert (await clones.create(source("p", checkpoint=checkpoint.id))).wal_files_left_out == 1


@housed
async def test_nothing_is_found_fault_with(house: House) -> None:
    """Clones of clones, parts, and unions that were joined, lifted and compacted, all of them written to."""
    await house.filled("p", *(bytes([letter]) for letter in b"abcdefgh"))
    made = {
        "c": ("p",),
        "n": ("c",),
        "left": (source("p", end=b"d"),),
        "right": (source("p", start=b"d"),),
        "united": ("right", "left"),
        "part": (source("p", end=b"b"),),
        "lifted": ("part", "right"),
    }
    for path, sources in made.items():
        async with house.admin(path) as clones:
            await clones.create(*sources)
    async with house.admin("compacted") as clones:
        await clones.create("right", "part", compact_union=True)
    for path in (*made, "compacted"):
        await house.filled(path, b"a", b"z")
    for path in ("p", *made, "compacted"):
        async with shale.Admin(path, store=house.store) as admin:
            assert (await admin.verify()).findings == ()
