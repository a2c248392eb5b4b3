"""Soft destroys, and how a collector treats them.

Source: docs/reference/protocol.md 8.8, T8.j.
"""

import logging
from uuid import UUID

import pytest

import shale
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.errors import (
    CorruptionError,
    FencedError,
    InvalidDbState,
    InvalidRequestError,
    LatestRecordMissing,
    UnavailableError,
)
from shale.format.names import deleting_key, destroyed_key
from shale.gc.hard_destroy import DestroyTarget, destroy
from shale.gc.options import DELETE_GRACE_PERIOD_S
from shale.gc.soft_destroy import (
    DeletionPhase,
    DeletionStatus,
    delete_due_database,
    destroy_later,
    read_deletion_status,
)
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import (
    DestroyedMark,
    decode_destroyed_mark,
    encode_destroyed_mark,
    put_destroyed_mark,
    read_destroyed_mark,
)
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Manifest
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run

MARK = DestroyedMark(1_700_000_000, UUID(int=7))


async def advance_doom(target: DestroyTarget) -> DeletionStatus:
    """Run one tick of a collector on the database."""
    state = await read_deletion_status(target)
    return await delete_due_database(target, state.mark) if state.phase is DeletionPhase.DUE else state


def test_the_marker_keeps_its_time_and_ignores_what_is_added_later() -> None:
    data = encode_destroyed_mark(MARK)
    assert decode_destroyed_mark(data, path="m") == MARK
    assert decode_destroyed_mark(data[:-1] + b', "more": 1}', path="m") == MARK


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(encode_destroyed_mark(MARK).replace(b'"format": 1', b'"format": 2'), id="a format of the future"),
        pytest.param(encode_destroyed_mark(MARK).replace(b"1700000000", b"-1"), id="before time"),
        pytest.param(encode_destroyed_mark(MARK).replace(b"1700000000", b"1.5"), id="no whole second"),
        pytest.param(encode_destroyed_mark(MARK).replace(b"1700000000", b"true"), id="no number"),
        pytest.param(encode_destroyed_mark(MARK).replace(b"0007", b"xxxx"), id="no UUID"),
    ],
)
def test_a_marker_that_cannot_be_understood_names_its_place(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"db/\.destroyed"):
        decode_destroyed_mark(data, path="db/.destroyed")


def test_the_first_marker_holds() -> None:
    async def main() -> None:
        store = MemoryStore()
        assert await read_destroyed_mark(store, "db") is None
        assert await put_destroyed_mark(store, "db", MARK) == MARK
        assert await put_destroyed_mark(store, "db", DestroyedMark(5, UUID(int=1))) == MARK

    run(main)


def test_writers_end_and_it_cannot_be_opened_again() -> None:
    async def main() -> None:
        harness = Harness()
        db = await harness.open("db")
        await db.put(b"k", b"v")
        await db.flush("memtable")
        await CompactionsStore(harness.store, "db", harness.env).load_or_create()
        epochs = (await harness.latest()).writer_epoch, (await harness.latest()).compactor_epoch
        mark = await destroy_later(harness.target())
        assert mark.destroyed_at_s == harness.clock.ms // 1000
        manifest = await harness.latest()
        compactions = await CompactionsStore(harness.store, "db", harness.env).read_latest()
        assert (manifest.writer_epoch, manifest.compactor_epoch) == (epochs[0] + 1, epochs[1] + 1)
        assert compactions.value.compactor_epoch == manifest.compactor_epoch
        with pytest.raises(FencedError):
            await (await db.put(b"k", b"w")).durable()
        with pytest.raises(FencedError):
            await db.close()
        with pytest.raises(InvalidDbState, match="destroyed"):
            await harness.open("db")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await shale.DbReader.open("db", store=harness.store, env=harness.env)

    run(main)


def test_where_no_compactor_ever_ran_no_file_of_it_appears() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        assert not [key for key in harness.listing() if "/compactions/" in key]

    run(main)


def test_without_the_store_of_its_wal_it_is_not_marked() -> None:
    async def main() -> None:
        harness = Harness()
        options = ProtocolOptions(manifest_write_version=1)  # only this version names the store
        manifests = ManifestStore(harness.store, "db", harness.env, options=options)
        await manifests.create_new(Manifest(wal_object_store_uri="memory://wal/"))
        before = harness.listing()
        with pytest.raises(InvalidRequestError, match="memory://wal/"):
            await destroy_later(harness.target())
        assert harness.listing() == before

    run(main)


def test_a_second_time_changes_nothing() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        first = await destroy_later(harness.target())
        before = harness.listing()
        harness.clock.sleep(3600)
        assert await destroy_later(harness.target()) == first
        assert harness.listing() == before

    run(main)


def test_only_a_whole_database_is_marked() -> None:
    async def main() -> None:
        harness = Harness()
        with pytest.raises(LatestRecordMissing):
            await destroy_later(harness.target())
        await harness.store.put("db/readme", b"")
        with pytest.raises(InvalidDbState, match="is no database"):
            await destroy_later(harness.target())
        await harness.make("half")
        faulty = FaultyStore(harness.store, harness.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
        with pytest.raises(UnavailableError):
            await destroy(harness.target("half", store=faulty))
        with pytest.raises(InvalidDbState, match="hard destroy"):
            await destroy_later(harness.target("half"))
        await harness.make("going")
        await harness.store.put(deleting_key("going"), b"")
        with pytest.raises(InvalidDbState, match="being deleted"):
            await destroy_later(harness.target("going"))

    run(main)


@pytest.mark.parametrize("lost", [Fault.BEFORE, Fault.AFTER])
def test_a_stop_at_any_request_leaves_a_database_that_can_be_marked(lost: Fault) -> None:
    async def main() -> None:
        for skip in range(100):
            harness = Harness()
            await harness.make()
            faulty = FaultyStore(harness.store, harness.env.rng)
            rule = Rule(fault=lost, skip=skip)
            faulty.add(rule)
            try:
                await destroy_later(harness.target(store=faulty))
            except UnavailableError:
                await destroy_later(harness.target())
            assert await read_destroyed_mark(harness.store, "db") is not None
            if rule.times:
                return
        pytest.fail("it never ends")

    run(main)


def test_its_own_checkpoints_end_with_the_writer() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        stored = await harness.manifests().load()
        await create_checkpoint(stored, harness.env, lifetime_ms=None, name="writer:3")
        kept = await create_checkpoint(stored, harness.env, lifetime_ms=None, name="nightly")
        await destroy_later(harness.target())
        assert [each.id for each in (await harness.latest()).checkpoints] == [kept.id]

    run(main)


def test_a_database_that_is_not_marked_is_left_alone() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        before = harness.listing()
        harness.clock.sleep(10 * DELETE_GRACE_PERIOD_S)
        assert (await advance_doom(harness.target())).phase is DeletionPhase.ALIVE
        assert harness.listing() == before

    run(main)


def test_it_goes_when_the_grace_is_over_and_not_before() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.make("db2")
        others = harness.contents("db2/")
        mark = await destroy_later(harness.target())
        harness.clock.ms = (mark.destroyed_at_s * 1000) + int(DELETE_GRACE_PERIOD_S * 1000)
        before = harness.listing()
        assert (await advance_doom(harness.target())).phase is DeletionPhase.WAITING
        assert harness.listing() == before
        harness.clock.ms += 1
        assert (await advance_doom(harness.target())).phase is DeletionPhase.GONE
        assert not [key for key in harness.listing() if key.startswith("db/")]
        assert harness.contents("db2/") == others

    run(main)


def test_a_checkpoint_blocks_it_and_is_named_at_each_tick(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        stored = await harness.manifests().load()
        pin = await create_checkpoint(stored, harness.env, lifetime_ms=None)
        brief = await create_checkpoint(stored, harness.env, lifetime_ms=60_000)
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        for _ in range(2):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert (await advance_doom(harness.target())).phase is DeletionPhase.BLOCKED
            assert str(pin.id) in caplog.text
            assert str(brief.id) not in caplog.text
        await release_checkpoints(await harness.manifests().load(), [pin.id])
        assert (await advance_doom(harness.target())).phase is DeletionPhase.GONE

    run(main)


def test_a_parent_waits_for_its_clone() -> None:
    """T8.j: the clone's pin is released in spite of the marker, and then the parent is deleted."""

    async def main() -> None:
        harness = Harness()
        await harness.make("parent")
        request = CloneRequest(path="child", sources=(CloneSource(path="parent"),))
        await create_clone(DatabaseCatalog(harness.store, harness.env, Metrics()), request)
        await destroy_later(harness.target("parent"))
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        assert (await advance_doom(harness.target("parent"))).phase is DeletionPhase.BLOCKED
        await destroy(harness.target("child"))
        assert (await advance_doom(harness.target("parent"))).phase is DeletionPhase.GONE
        assert harness.listing() == []

    run(main)


def test_what_else_lies_below_the_root_blocks_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.make("db/nested")
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        with caplog.at_level(logging.WARNING):
            assert (await advance_doom(harness.target())).phase is DeletionPhase.BLOCKED
        assert "db/nested" in caplog.text
        await destroy(harness.target("db/nested"))
        assert (await advance_doom(harness.target())).phase is DeletionPhase.GONE

    run(main)


def test_a_deletion_that_was_begun_is_finished_without_asking_again() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        faulty = FaultyStore(harness.store, harness.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="delete", key_contains="/wal/"))
        with pytest.raises(UnavailableError):
            await advance_doom(harness.target(store=faulty))
        assert destroyed_key("db") in harness.listing()
        assert (await advance_doom(harness.target())).phase is DeletionPhase.GONE
        assert harness.listing() == []

    run(main)


def test_a_marker_that_cannot_be_read_deletes_nothing() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.store.put(destroyed_key("db"), b"{}")
        before = harness.listing()
        harness.clock.sleep(10 * DELETE_GRACE_PERIOD_S)
        with pytest.raises(CorruptionError):
            await advance_doom(harness.target())
        assert harness.listing() == before

    run(main)


def test_the_last_marker_alone_is_removed_and_a_hard_destroy_that_stopped_is_left_to_people() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.store.put(deleting_key("db"), b"")
        assert (await advance_doom(harness.target())).phase is DeletionPhase.GONE
        assert harness.listing() == []
        await harness.make()
        await harness.store.put(deleting_key("db"), b"")
        before = harness.listing()
        assert (await advance_doom(harness.target())).phase is DeletionPhase.ALIVE
        assert harness.listing() == before

    run(main)


@pytest.mark.parametrize("dry_run", [False, True])
def test_expired_checkpoints_of_a_marked_database_are_removed_unless_nothing_is_written(dry_run: bool) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await create_checkpoint(await harness.manifests().load(), harness.env, lifetime_ms=60_000)
        await destroy_later(harness.target())
        harness.clock.sleep(61)
        before = (await harness.manifests().read_latest()).id
        state = await read_deletion_status(harness.target(), dry_run=dry_run)
        assert state.phase is DeletionPhase.WAITING
        latest = await harness.manifests().read_latest()
        assert (latest.id - before, len(latest.value.checkpoints)) == ((0, 1) if dry_run else (1, 0))

    run(main)
