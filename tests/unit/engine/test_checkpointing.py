"""Checkpoints of a writer: what they include, what they cost, and the one that the writer keeps for itself."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.engine.last_writer import is_close
from shale.engine.writer_checkpoint import WriterCheckpoint, without_writers_before
from shale.env import Env
from shale.errors import CheckpointMissing, FencedError, InvalidCheckpointLifetime, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Checkpoint, Manifest, ManifestId

Story = Callable[[MemoryStore], Awaitable[None]]


def run(story: Story) -> None:
    anyio.run(story, MemoryStore())


def open_db(store: Any, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, **settings})


async def versions(store: MemoryStore) -> list[Manifest]:
    """All manifests, the first one first."""
    manifests = ManifestStore(store, "db", Env.system())
    found = [await manifests.read(meta.id) for meta in await manifests.list_versions()]
    return [manifest for manifest in found if manifest is not None]


async def fill_l0(db: shale.Db) -> None:
    for _ in range(2):
        await db.put(b"old", b"1")
        await db.flush("memtable")


def test_a_checkpoint_of_everything_rides_on_the_version_that_brings_it_to_l0() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            before = db.manifest_id
            made = await db.checkpoint()
            assert (db.manifest_id, made.manifest_id) == (before + 1, before + 1)
            assert len(db.manifest.tree.l0) == 1
            # With nothing left to flush it is a version of its own.
            again = await db.checkpoint(name="again")
            assert (again.manifest_id, len(db.manifest.tree.l0)) == (before + 2, 1)

    run(story)


def test_a_durable_checkpoint_has_what_is_in_the_wal_and_flushes_nothing() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store, flush_interval=None) as db:
            await db.put(b"a", b"durable")
            await db.flush("wal")
            await db.put(b"b", b"only in memory")
            made = await db.checkpoint(scope="durable")
            assert not db.manifest.tree.l0
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get_many([b"a", b"b"]) == [b"durable", None]

    run(story)


def test_a_checkpoint_of_a_checkpoint() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"1")
            source = await db.checkpoint(lifetime="1h")
            await db.put(b"k", b"2")
            made = await db.checkpoint(source=str(source.id), name="copy")
            assert (await db.checkpoint(source="copy")).manifest_id == made.manifest_id
            assert (made.manifest_id, made.expire_s) == (source.manifest_id, 0)
            assert db.manifest.last_l0_seq == 1
            before = db.manifest_id
            for unknown in (UUID(int=5), "nightly"):
                with pytest.raises(CheckpointMissing, match=str(unknown)):
                    await db.checkpoint(source=unknown)
            for wrong in ({"scope": "some"}, {"source": ""}):
                with pytest.raises(InvalidRequestError):
                    await db.checkpoint(**wrong)
            assert db.manifest_id == before

    run(story)


@pytest.mark.parametrize(
    ("name", "why"), [("\ud800", "UTF-8"), (5, "no text"), (b"x", "no text"), ("writer:1", "writer's own")]
)
def test_a_name_that_cannot_be_stored_does_not_cost_the_writer(name: Any, why: str) -> None:
    """It would fail in the flush that carries the checkpoint, and with it everything that is not durable yet."""

    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            for source in (None, (await db.checkpoint()).id):
                with pytest.raises(InvalidRequestError, match=why):
                    await db.checkpoint(name=name, source=source)
            await db.put(b"k", b"w")
            await db.flush("memtable")
        async with shale.Admin(store=store, path="db") as admin:
            with pytest.raises(InvalidRequestError, match=why):
                await admin.checkpoints.create(name=name)
            assert len(await admin.checkpoints.list()) == 1

    run(story)


def test_an_impossible_lifetime_is_told_before_anything_is_flushed() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            for lifetime in (0, 2**32):
                with pytest.raises(InvalidCheckpointLifetime):
                    await db.checkpoint(lifetime=lifetime)
            assert not db.manifest.tree.l0

    run(story)


def test_a_full_l0_is_waited_for_so_long_and_then_what_is_durable_is_kept() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store, l0_max_ssts=2, checkpoint_flush_timeout=0.05) as db:
            await fill_l0(db)
            await db.put(b"new", b"2")
            with anyio.fail_after(60):
                made = await db.checkpoint()
            assert len(db.manifest.tree.l0) == 2
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get(b"new") == b"2"
            await db.close("wal")

    run(story)


def test_without_a_timeout_a_full_l0_is_waited_for_until_the_writer_ends() -> None:
    async def story(store: MemoryStore) -> None:
        db = await open_db(store, l0_max_ssts=2)
        await fill_l0(db)
        await db.put(b"new", b"2")
        told: list[type] = []

        async def ask() -> None:
            with pytest.raises(FencedError) as caught:
                await db.checkpoint()
            told.append(caught.type)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                async with open_db(store):
                    with pytest.raises(FencedError):
                        await db.refresh()
        assert told == [FencedError]
        with pytest.raises(FencedError):
            await db.close()

    run(story)


def test_no_version_looks_like_a_close_when_the_answer_to_a_checkpoint_was_lost() -> None:
    async def story(store: MemoryStore) -> None:
        faulty = FaultyStore(store, random.Random(1))
        async with open_db(faulty, checkpoint_flush_timeout=0) as db:
            await db.put(b"k", b"v")
            faulty.add(Rule(fault=Fault.AFTER, op="put", key_contains="manifest/", times=1))
            made = await db.checkpoint()
            await db.put(b"k", b"w")
            await db.checkpoint(source=made.id)
            before = db.manifest_id
        steps = list(zip(await versions(store), (await versions(store))[1:], strict=False))
        assert [is_close(older, newer) for older, newer in steps[: before - 1]] == [False] * (before - 1)
        assert len([entry for entry in steps[-1][1].checkpoints if entry.id == made.id]) == 1

    run(story)


def test_a_writer_keeps_what_it_serves_and_lets_go_when_it_closes() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store, writer_checkpoint=True) as db:
            (own,) = db.manifest.checkpoints
            assert (own.name, own.expire_s) == (f"writer:{db.writer_epoch}", 0)
            mine = await db.checkpoint(name="mine")
            assert {entry.id for entry in db.manifest.checkpoints} == {own.id, mine.id}
            await db.put(b"k", b"v")
            await db.flush("memtable")
            after = {entry.name: entry for entry in db.manifest.checkpoints}
            assert after[own.name].id != own.id
            assert after[own.name].manifest_id == db.manifest_id
        last = (await versions(store))[-1]
        assert [entry.name for entry in last.checkpoints] == ["mine"]

    run(story)


def test_a_checkpoint_that_somebody_deleted_is_made_again_at_the_next_poll() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store, writer_checkpoint=True) as db:
            await db.put(b"k", b"v")
            await db.flush("memtable")
            before = db.manifest.checkpoints
            await db.refresh()
            assert db.manifest.checkpoints == before
            stored = await ManifestStore(store, "db", Env.system()).load()
            await stored.apply(lambda current: replace(current.value, checkpoints=()))
            await db.refresh()
            (own,) = db.manifest.checkpoints
            assert (own.manifest_id, own.id == before[0].id) == (db.manifest_id, False)

    run(story)


def test_what_a_crashed_writer_kept_goes_with_the_next_one_whatever_its_options() -> None:
    async def story(store: MemoryStore) -> None:
        crashed = await open_db(store, writer_checkpoint=True)
        await crashed.put(b"k", b"v")
        await crashed.flush("memtable")
        async with open_db(store) as db:
            assert not db.manifest.checkpoints
            with pytest.raises(FencedError):
                await crashed.close()

    run(story)


def entry(number: int, name: str | None) -> Checkpoint:
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), name=name)


def test_only_the_exact_names_of_fenced_writers_go() -> None:
    names = ["writer:1", "writer:2", "writer:3", "writer:", "writer:x", "writers:1", None, "xwriter:1", "writer:1 "]
    manifest = Manifest(checkpoints=tuple(entry(number, name) for number, name in enumerate(names)))
    kept = without_writers_before(manifest, 3)
    assert [each.name for each in kept.checkpoints] == names[2:]
    assert without_writers_before(kept, 3) is kept


def test_a_renewal_that_landed_below_somebody_elses_commit_is_made_again() -> None:
    own = WriterCheckpoint(Env.system(), 4)
    renewed = own.renewal()(Manifest(), 7)
    # Our version 7 landed, its answer was lost, and version 8 is somebody else's.
    own.note(Versioned(8, renewed))
    assert own.is_behind(renewed)
    again = own.renewal()(renewed, 9)
    own.note(Versioned(9, again))
    assert not own.is_behind(again)
    assert [each.manifest_id for each in again.checkpoints] == [9]
