"""Cloning without faults: the traces of docs/reference/protocol.md 10.6, and refused requests."""

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
from shale.types import EVERYTHING, KeyRange


class UnevenClock(SystemClock):
    """A clock that never returns the same millisecond twice, so that later objects have later times."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(self._last_ms + 1, super().now_ms())
        return self._last_ms


class Harness:
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

    async def filled(self, path: str, *keys: bytes) -> "Harness":
        async with shale.Db.open(path, store=self.store, enforce_visible_range=EVERYTHING) as db:
            for key in keys:
                await db.put(key, key)
        return self


def with_harness(scenario: Callable[[Harness], Awaitable[None]]) -> Callable[[], None]:
    """Run a test with a harness that has one database, ``p``."""

    def test() -> None:
        async def main() -> None:
            await scenario(await Harness().filled("p", b"a", b"b"))

        anyio.run(main)

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@with_harness
async def test_t10_a_which_versions_are_written(harness: Harness) -> None:
    before = await harness.load("p")
    async with harness.admin("c") as clones:
        made = await clones.create("p")
    after = await harness.load("p")
    assert after.id == before.id + 2
    ephemeral, final = after.value.checkpoints
    assert (ephemeral.manifest_id, final.manifest_id) == (before.id + 1, before.id + 1)
    assert (ephemeral.expire_s - ephemeral.create_s, final.expire_s) == (300, 0)
    first, second = [await harness.manifests("c").read(version) for version in (1, 2)]
    assert first is not None
    assert second == replace(first, initialized=True)
    assert not first.initialized
    assert first.writer_epoch == before.value.writer_epoch
    (entry,) = first.external_dbs
    assert (entry.path, entry.source_checkpoint_id, entry.final_checkpoint_id) == ("p", ephemeral.id, final.id)
    assert (made.manifest_id, made.is_new, made.checkpoints) == (2, True, (ephemeral.id,))


@with_harness
async def test_t10_b_and_f_a_clone_of_a_clone(harness: Harness) -> None:
    async with harness.admin("c") as clones:
        await clones.create("p")
    async with harness.admin("d") as clones:
        await clones.create("c")
    child, grandchild = (await harness.load("c")).value, (await harness.load("d")).value
    old, own = grandchild.external_dbs
    assert (old.path, old.source_checkpoint_id) == ("p", child.external_dbs[0].final_checkpoint_id)
    assert (own.path, own.sst_ids) == ("c", ())
    pins = [each.id for each in (await harness.load("p")).value.checkpoints if not each.expire_s]
    assert pins == [child.external_dbs[0].final_checkpoint_id, old.final_checkpoint_id]
    async with shale.Db.open("d", store=harness.store) as db:
        assert db.status.writer_epoch == grandchild.writer_epoch + 1
        assert await db.get(b"a") == b"a"


@with_harness
async def test_a_named_checkpoint(harness: Harness) -> None:
    checkpoint = await create_checkpoint(await harness.load("p"), harness.env, lifetime_ms=None, name="nightly")
    await harness.filled("p", b"later")
    async with harness.admin("c") as clones:
        made = await clones.create(source("p", checkpoint="nightly"))
        assert made.checkpoints == (checkpoint.id,)
        for named in (checkpoint.id, str(checkpoint.id), "nightly"):
            assert not (await clones.create(source("p", checkpoint=named))).is_new
    async with shale.DbReader.open("c", store=harness.store) as reader:
        assert [row.key async for row in reader.scan()] == [b"a", b"b"]
    other = await create_checkpoint(await harness.load("p"), harness.env, lifetime_ms=None)
    async with harness.admin("c") as clones:
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create(source("p", checkpoint=other.id))
    await release_checkpoints(await harness.load("p"), [checkpoint.id, other.id])
    async with harness.admin("c") as clones:
        assert not (await clones.create(source("p", checkpoint=str(checkpoint.id)))).is_new
    async with harness.admin("e") as clones:
        for gone in (other.id, str(other.id), "nightly"):
            with pytest.raises(CheckpointMissing, match=str(gone)):
                await clones.create(source("p", checkpoint=gone))
        with pytest.raises(InvalidRequestError, match="neither the id of a checkpoint"):
            await clones.create(source("p", checkpoint=""))


@with_harness
async def test_paths_that_cannot_be(harness: Harness) -> None:
    for path, sources, error in (
        ("p", ("p",), IdenticalClonePaths),
        ("p/inside", ("p",), IdenticalClonePaths),
        ("p", ("p/inside",), IdenticalClonePaths),
        ("c", ("p", "/p/"), DuplicatedCloneSourcePath),
        ("c", (), InvalidUnionSetEmpty),
        ("c", ("nowhere",), LatestRecordMissing),
        ("c", ("p", "nowhere"), LatestRecordMissing),
    ):
        async with harness.admin(path) as clones:
            with pytest.raises(error) as caught:
                await clones.create(*sources)
        assert "nowhere" not in sources or "no database at nowhere" in str(caught.value)
    assert await harness.store.list("c/") == []
    async with harness.admin("pp") as clones:  # no part of "p", though it begins like it
        assert (await clones.create("p")).is_new


@with_harness
async def test_ranges_without_a_key(harness: Harness) -> None:
    """Exchanged ends are the likely cause.  A source's own range and the common one may be disjoint."""
    async with harness.admin("c") as clones:
        for start, end in ((b"m", b"a"), (b"m", b"m")):
            with pytest.raises(InvalidRequestError, match="no key in the range b'm'"):
                await clones.create(source("p", start=start, end=end))
            with pytest.raises(InvalidRequestError, match="no key in the range b'm'"):
                await clones.create("p", keys=KeyRange.half_open(start, end))
        assert await harness.store.list("c/") == []
        await clones.create(source("p", end=b"b"), keys=KeyRange.half_open(b"b", None))
    async with shale.DbReader.open("c", store=harness.store) as reader:
        assert [row async for row in reader.scan()] == []


@with_harness
async def test_another_database_at_the_path_is_not_replaced(harness: Harness) -> None:
    await harness.filled("q", b"z")
    async with harness.admin("q") as clones:
        with pytest.raises(CloneExternalDbMissing):
            await clones.create("p")
    async with harness.admin("c") as clones:
        await clones.create("p")
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create("q")
    (entry,) = (await harness.load("c")).value.external_dbs
    assert entry.final_checkpoint_id is not None
    await release_checkpoints(await harness.load("p"), [entry.final_checkpoint_id])
    async with harness.admin("c") as clones:
        with pytest.raises(CloneIncorrectFinalCheckpoint):
            await clones.create("p")


@pytest.mark.parametrize("marked", ["p", "c"])
def test_destroyed_databases_are_left_alone(marked: str) -> None:
    async def main() -> None:
        harness = await Harness().filled("p", b"a")
        await harness.store.put(destroyed_key(marked), b"{}")
        async with harness.admin("c") as clones:
            with pytest.raises(InvalidDbState):
                await clones.create("p")

    anyio.run(main)


@with_harness
async def test_a_half_built_source(harness: Harness) -> None:
    stored = await harness.load("p")
    await stored.update(Versioned(stored.id, replace(stored.value, initialized=False)))
    async with harness.admin("c") as clones:
        with pytest.raises(InvalidDbState, match="not initialised"):
            await clones.create("p")


@with_harness
async def test_a_union_of_halves_without_ssts_of_their_own_is_recognised(harness: Harness) -> None:
    """The recipe of docs/how-to/clones.md: a second call finds a complete clone."""
    halves = {"left": source("p", end=b"b"), "right": source("p", start=b"b")}
    for path, half in halves.items():
        async with harness.admin(path) as clones:
            await clones.create(half)
    await harness.filled("other", b"z")
    async with harness.admin("u") as clones:
        assert (await clones.create("left", "right")).checkpoints == (None, None)
        again = await clones.create("left", "right")
        assert (again.is_new, again.checkpoints) == (False, (None, None))
        for sources in (("left",), ("left", "other")):
            with pytest.raises(CloneIncorrectExternalDbCheckpoint):
                await clones.create(*sources)
        await harness.filled("right", b"c")
        with pytest.raises(CloneIncorrectExternalDbCheckpoint, match="not made of left"):
            await clones.create("left", "right")


@with_harness
async def test_a_half_built_union_of_such_halves_is_finished(harness: Harness) -> None:
    for path, half in {"left": source("p", end=b"b"), "right": source("p", start=b"b")}.items():
        async with harness.admin(path) as clones:
            await clones.create(half)
    async with shale.Db.open("empty", store=harness.store):
        pass
    async with harness.admin("u") as clones:
        await clones.create("left", "right")
        finished = await harness.load("u")
        (pin,) = [entry.final_checkpoint_id for entry in finished.value.external_dbs]
        assert pin is not None
        await harness.store.delete(manifest_key("u", 2))
        await release_checkpoints(await harness.load("p"), [pin])
        with pytest.raises(CloneIncorrectExternalDbCheckpoint):
            await clones.create("left", "empty")
        assert (await clones.create("left", "right")).is_new
    assert (await harness.load("p")).value.checkpoint(pin) is not None
    async with shale.DbReader.open("u", store=harness.store) as reader:
        assert [row.key async for row in reader.scan()] == [b"a", b"b"]


@with_harness
async def test_rows_after_a_named_checkpoint(harness: Harness) -> None:
    """Only rows before the checkpoint are cloned; the checkpoint's time in seconds is too coarse to decide."""
    async with shale.Db.open("p", store=harness.store, flush_interval=0) as db:
        await (await db.put(b"c", b"later")).durable()
        checkpoint = await create_checkpoint(await harness.load("p"), harness.env, lifetime_ms=None)
        await (await db.put(b"d", b"later")).durable()
        async with harness.admin("c") as clones:
            with pytest.raises(InvalidDbState, match="holds 1 file of rows"):
                await clones.create(source("p", checkpoint=checkpoint.id))
            made = await clones.create(source("p", checkpoint=checkpoint.id), allow_wal_gap=True)
            assert made.wal_files_left_out == 1


@with_harness
async def test_clones_of_all_kinds_have_no_findings(harness: Harness) -> None:
    """Clones of clones, projections, and unions that were joined, promoted and compacted, with later writes."""
    await harness.filled("p", *(bytes([letter]) for letter in b"abcdefgh"))
    made = {
        "c": ("p",),
        "n": ("c",),
        "left": (source("p", end=b"d"),),
        "right": (source("p", start=b"d"),),
        "united": ("right", "left"),
        "part": (source("p", end=b"b"),),
        "promoted": ("part", "right"),
    }
    for path, sources in made.items():
        async with harness.admin(path) as clones:
            await clones.create(*sources)
    async with harness.admin("compacted") as clones:
        await clones.create("right", "part", compact_union=True)
    for path in (*made, "compacted"):
        await harness.filled(path, b"a", b"z")
    for path in ("p", *made, "compacted"):
        async with shale.Admin(path, store=harness.store) as admin:
            assert (await admin.verify()).findings == ()
