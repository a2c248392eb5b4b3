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
from shale.engine.options import DbOptions
from shale.engine.write.clean_close import is_clean_close
from shale.env import Env, InlineCpu
from shale.errors import CheckpointMissing, FencedError, InvalidCheckpointLifetime, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Checkpoint, Epoch, Manifest, ManifestId
from shale.types.writer_sign import WriterIdentity, WriterPresence, writer_status
from tests.clocks import ManualClock

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
        async with open_db(store, writer_endpoint="http://a:1/?b=c&d") as db:
            (own,) = db.status.manifest.checkpoints
            assert (own.manifest_id, own.expire_s - own.create_s) == (2, 900)  # the claim of the epoch created it
            assert own.writer_epoch == db.status.writer_epoch == 1
            assert WriterIdentity.of(own).endpoint == "http://a:1/?b=c&d"
            mine = await db.checkpoint(name="mine")
            assert {entry.id for entry in db.status.manifest.checkpoints} == {own.id, mine.id}
            await db.put(b"k", b"v")
            await db.flush("memtable")
            after = {entry.name: entry for entry in db.status.manifest.checkpoints}
            assert after[own.name].id != own.id
            assert after[own.name].manifest_id == db.status.manifest_id
            await db.put(b"k", b"w")
        *_, closing, last = await versions(store)
        assert len(closing.tree.l0) == 2
        assert [entry.name for entry in closing.checkpoints] == ["mine"], "the flush of the close drops it"
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
        async with open_db(store, writer_checkpoint=False) as db:
            assert not db.status.manifest.checkpoints
            assert writer_status(db.status.manifest, 0).presence is WriterPresence.UNKNOWN
            with pytest.raises(FencedError):
                await crashed.close()

    run(scenario)


def entry(number: int, name: str | None) -> Checkpoint:
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), name=name)


def test_only_the_exact_names_of_fenced_writers_go() -> None:
    names = ["writer:1", "writer:2?host=a\n", "writer:3", "writer:3?x", "writer:", "writer:x", "writers:1", None]
    names += ["xwriter:1", "writer:1 ", "writer:" + "1" * 20]
    manifest = Manifest(checkpoints=tuple(entry(number, name) for number, name in enumerate(names)))
    kept = without_writers_before(manifest, 3)
    assert [each.name for each in kept.checkpoints] == names[2:]
    assert without_writers_before(kept, 3) is kept


def test_a_renewal_that_landed_below_another_commit_is_made_again() -> None:
    own = writer_checkpoint(Env.system())
    renewed = own.claimed(Manifest(), Epoch(4), 7)
    # Our version 7 landed, its response was lost, and another process wrote version 8.
    own.record(Versioned(8, renewed))
    assert own.is_outdated(renewed)
    again = own.renewal()(renewed, 9)
    own.record(Versioned(9, again))
    assert not own.is_outdated(again)
    assert [each.manifest_id for each in again.checkpoints] == [9]


def writer_checkpoint(env: Env) -> WriterCheckpoint:
    """Return the checkpoint of a writer that opens now."""
    made = WriterCheckpoint.of_options(DbOptions(writer_checkpoint_lifetime_s=600), env)
    assert made is not None
    return made


def test_an_idle_writer_renews_its_checkpoint_after_half_of_its_life() -> None:
    clock = ManualClock()
    own = writer_checkpoint(Env(clock, random.Random(1), InlineCpu()))
    first = own.claimed(Manifest(writer_epoch=Epoch(3)), Epoch(3), 2)
    own.record(Versioned(2, first))
    began_s = clock.ms // 1000
    clock.ms += 299_000
    assert not own.is_outdated(first)
    clock.ms += 2_000
    assert own.is_outdated(first)
    second = own.renewal()(first, 3)
    own.record(Versioned(3, second))
    assert not own.is_outdated(second)
    assert [(each.manifest_id, each.create_s, each.expire_s) for each in second.checkpoints] == [
        (3, began_s + 301, began_s + 901)
    ]
    status = writer_status(second, clock.ms)
    assert (status.presence, status.seen_s) == (WriterPresence.SIGNED, began_s + 301)
    assert status.identity is not None
    assert (status.identity.since_s, bool(status.identity.host)) == (began_s, True)


@pytest.mark.parametrize(
    ("epoch", "signs", "presence"),
    [
        pytest.param(0, [], WriterPresence.NONE, id="no writer ever"),
        pytest.param(2, [], WriterPresence.UNKNOWN, id="closed, or a SlateDB process"),
        pytest.param(2, [(1, 0)], WriterPresence.UNKNOWN, id="only the fenced writer signed"),
        pytest.param(2, [(1, 0), (2, 101)], WriterPresence.SIGNED, id="alive"),
        pytest.param(2, [(2, 100)], WriterPresence.SILENT, id="expired"),
    ],
)
def test_what_a_manifest_tells_about_its_writer(
    epoch: int, signs: list[tuple[int, int]], presence: WriterPresence
) -> None:
    listed = tuple(
        replace(entry(number, f"writer:{of}"), expire_s=expire_s, create_s=7)
        for number, (of, expire_s) in enumerate(signs)
    )
    status = writer_status(Manifest(writer_epoch=Epoch(epoch), checkpoints=listed), 100_000)
    assert (status.presence, status.epoch) == (presence, epoch)
    if status.identity is not None:
        assert status.identity == WriterIdentity(holder="", host="", since_s=7)


async def count_puts(*, own: bool) -> list[int]:
    """Return the number of creates and updates of an opening, of six flushes, and of a close with rows to flush."""
    store = FaultyStore(MemoryStore(), random.Random(1))
    requests: list[str] = []
    store.observe(lambda request: requests.append(request.op))
    counts = []
    async with open_db(store, writer_checkpoint=own, manifest_poll_interval="1h") as db:
        counts.append(requests.count("put"))
        for number in range(6):
            await db.put(b"k%d" % number, b"v")
            await db.flush("memtable")
        counts.append(requests.count("put"))
        await db.put(b"k", b"v")
    return [*counts, requests.count("put")]


def test_the_checkpoint_of_a_writer_costs_no_request() -> None:
    async def main() -> None:
        assert await count_puts(own=True) == await count_puts(own=False)

    anyio.run(main)
