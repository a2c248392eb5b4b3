"""Checkpoints of a writer: their rows, their cost, and the one that the writer keeps for itself."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.engine.flush.writer_checkpoint import WriterCheckpoint, without_writers_before
from shale.engine.write.clean_close import is_clean_close
from shale.env import Env
from shale.errors import CheckpointMissing, FencedError, InvalidCheckpointLifetime, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Checkpoint, Manifest, ManifestId

Scenario = Callable[[MemoryStore], Awaitable[None]]


def run(scenario: Scenario) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: Any, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, **settings})


async def versions(store: MemoryStore) -> list[Manifest]:
    """Return all manifests, oldest first."""
    manifests = ManifestStore(store, "db", Env.system())
    found = [await manifests.read(meta.id) for meta in await manifests.list_versions()]
    return [manifest for manifest in found if manifest is not None]


async def fill_l0(db: shale.Db) -> None:
    for _ in range(2):
        await db.put(b"old", b"1")
        await db.flush("memtable")


def test_a_checkpoint_of_everything_rides_on_the_version_that_brings_it_to_l0() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            before = db.status.manifest_id
            made = await db.checkpoint()
            assert (db.status.manifest_id, made.manifest_id) == (before + 1, before + 1)
            assert len(db.status.manifest.tree.l0) == 1
            # With nothing left to flush it is a version of its own.
            again = await db.checkpoint(name="again")
            assert (again.manifest_id, len(db.status.manifest.tree.l0)) == (before + 2, 1)

    run(scenario)


def test_a_durable_checkpoint_has_what_is_in_the_wal_and_flushes_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, flush_interval=None) as db:
            await db.put(b"a", b"durable")
            await db.flush("wal")
            await db.put(b"b", b"only in memory")
            made = await db.checkpoint(scope="durable")
            assert not db.status.manifest.tree.l0
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get_many([b"a", b"b"]) == [b"durable", None]

    run(scenario)


def test_a_checkpoint_of_a_checkpoint() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"1")
            source = await db.checkpoint(lifetime="1h")
            await db.put(b"k", b"2")
            made = await db.checkpoint(source=str(source.id), name="copy")
            assert (await db.checkpoint(source="copy")).manifest_id == made.manifest_id
            assert (made.manifest_id, made.expire_s) == (source.manifest_id, 0)
            assert db.status.manifest.last_l0_seq == 1
            before = db.status.manifest_id
            for unknown in (UUID(int=5), "nightly"):
                with pytest.raises(CheckpointMissing, match=str(unknown)):
                    await db.checkpoint(source=unknown)
            for wrong in ({"scope": "some"}, {"source": ""}):
                with pytest.raises(InvalidRequestError):
                    await db.checkpoint(**wrong)
            assert db.status.manifest_id == before

    run(scenario)


@pytest.mark.parametrize(
    ("name", "why"), [("\ud800", "UTF-8"), (5, "not a text"), (b"x", "not a text"), ("writer:1", "writer's own")]
)
def test_a_name_that_cannot_be_stored_does_not_cost_the_writer(name: Any, why: str) -> None:
    """It would fail in the flush that carries the checkpoint, with everything that is not durable yet."""

    async def scenario(store: MemoryStore) -> None:
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

    run(scenario)


def test_an_impossible_lifetime_is_told_before_anything_is_flushed() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            for lifetime in (0, 2**32):
                with pytest.raises(InvalidCheckpointLifetime):
                    await db.checkpoint(lifetime=lifetime)
            assert not db.status.manifest.tree.l0

    run(scenario)


def test_a_full_l0_is_waited_for_so_long_and_then_what_is_durable_is_kept() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, l0_max_ssts=2, checkpoint_flush_timeout=0.05) as db:
            await fill_l0(db)
            await db.put(b"new", b"2")
            with anyio.fail_after(60):
                made = await db.checkpoint()
            assert len(db.status.manifest.tree.l0) == 2
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get(b"new") == b"2"
            await db.close("wal")

    run(scenario)


def test_without_a_timeout_rows_that_a_full_l0_keeps_out_are_taken_from_the_wal() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, l0_max_ssts=2, flush_interval=None) as db:
            await fill_l0(db)
            await db.put(b"new", b"2")
            with anyio.fail_after(60):
                made = await db.checkpoint()
            assert len(db.status.manifest.tree.l0) == 2
            assert db.status.durable_seq == db.status.last_seq
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get(b"new") == b"2"
            await db.close("wal")

    run(scenario)


def test_without_a_wal_a_full_l0_keeps_rows_out_of_a_checkpoint() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, l0_max_ssts=2, wal_enabled=False) as db:
            await fill_l0(db)
            await db.put(b"new", b"2")
            with anyio.fail_after(60):
                made = await db.checkpoint()
            async with DbReader.open("db", store=store, checkpoint=made.id) as reader:
                assert await reader.get_many([b"old", b"new"]) == [b"1", None]

    run(scenario)


def test_with_a_long_timeout_a_full_l0_is_waited_for_until_the_writer_ends() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, l0_max_ssts=2, checkpoint_flush_timeout="1h")
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

    run(scenario)


def test_no_version_looks_like_a_close_when_the_answer_to_a_checkpoint_was_lost() -> None:
    async def scenario(store: MemoryStore) -> None:
        faulty = FaultyStore(store, random.Random(1))
        async with open_db(faulty, checkpoint_flush_timeout=0) as db:
            await db.put(b"k", b"v")
            faulty.add(Rule(fault=Fault.AFTER, op="put", key_contains="manifest/", times=1))
            made = await db.checkpoint()
            await db.put(b"k", b"w")
            await db.checkpoint(source=made.id)
            before = db.status.manifest_id
        steps = list(zip(await versions(store), (await versions(store))[1:], strict=False))
        assert [is_clean_close(older, newer) for older, newer in steps[: before - 1]] == [False] * (before - 1)
        assert len([entry for entry in steps[-1][1].checkpoints if entry.id == made.id]) == 1

    run(scenario)


def test_a_writer_keeps_what_it_serves_and_lets_go_when_it_closes() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, writer_checkpoint=True) as db:
            (own,) = db.status.manifest.checkpoints
            assert (own.name, own.expire_s) == (f"writer:{db.status.writer_epoch}", 0)
            mine = await db.checkpoint(name="mine")
            assert {entry.id for entry in db.status.manifest.checkpoints} == {own.id, mine.id}
            await db.put(b"k", b"v")
            await db.flush("memtable")
            after = {entry.name: entry for entry in db.status.manifest.checkpoints}
            assert after[own.name].id != own.id
            assert after[own.name].manifest_id == db.status.manifest_id
        last = (await versions(store))[-1]
        assert [entry.name for entry in last.checkpoints] == ["mine"]

    run(scenario)


def test_a_deleted_checkpoint_is_made_again_at_the_next_poll() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, writer_checkpoint=True) as db:
            await db.put(b"k", b"v")
            await db.flush("memtable")
            before = db.status.manifest.checkpoints
            await db.refresh()
            assert db.status.manifest.checkpoints == before
            stored = await ManifestStore(store, "db", Env.system()).load()
            await stored.apply(lambda current: replace(current.value, checkpoints=()))
            await db.refresh()
            (own,) = db.status.manifest.checkpoints
            assert (own.manifest_id, own.id == before[0].id) == (db.status.manifest_id, False)

    run(scenario)


def test_what_a_crashed_writer_kept_goes_with_the_next_one_whatever_its_options() -> None:
    async def scenario(store: MemoryStore) -> None:
        crashed = await open_db(store, writer_checkpoint=True)
        await crashed.put(b"k", b"v")
        await crashed.flush("memtable")
        async with open_db(store) as db:
            assert not db.status.manifest.checkpoints
            with pytest.raises(FencedError):
                await crashed.close()

    run(scenario)


def entry(number: int, name: str | None) -> Checkpoint:
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), name=name)


def test_only_the_exact_names_of_fenced_writers_go() -> None:
    names = ["writer:1", "writer:2", "writer:3", "writer:", "writer:x", "writers:1", None, "xwriter:1", "writer:1 "]
    manifest = Manifest(checkpoints=tuple(entry(number, name) for number, name in enumerate(names)))
    kept = without_writers_before(manifest, 3)
    assert [each.name for each in kept.checkpoints] == names[2:]
    assert without_writers_before(kept, 3) is kept


def test_a_renewal_that_landed_below_another_commit_is_made_again() -> None:
    own = WriterCheckpoint(Env.system(), 4)
    renewed = own.renewal()(Manifest(), 7)
    # Our version 7 landed, its response was lost, and another process wrote version 8.
    own.record(Versioned(8, renewed))
    assert own.is_outdated(renewed)
    again = own.renewal()(renewed, 9)
    own.record(Versioned(9, again))
    assert not own.is_outdated(again)
    assert [each.manifest_id for each in again.checkpoints] == [9]
