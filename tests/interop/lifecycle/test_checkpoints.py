"""Each implementation uses checkpoints of the other (docs/reference/protocol.md 14.6: I9, I10; 9)."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.compat.slatedb import uniffi as compat
from shale.engine.db_reader import DbReader
from shale.errors import CheckpointLifetimeTooShort, CheckpointMissing, FencedError, UnknownCheckpoint
from shale.format.manifest import decode_manifest, encode_manifest
from shale.types import Checkpoint
from shale.types.writer_sign import WriterIdentity, WriterPresence, writer_status
from tests.interop.compat.programs import file_store
from tests.interop.database_files import DatabaseFiles
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all, scanned

QUIET = Shape(settings={"garbage_collector_options": None})
UNKNOWN = "00000000-0000-4000-8000-000000000001"


def admin_of_slatedb(folder: Path) -> Any:
    return slate.AdminBuilder("db", open_folder(folder)).build()


def options(
    lifetime_ms: int | None = None, source: str | None = None, name: str | None = None, api: Any = slate
) -> Any:
    return api.CheckpointOptions(lifetime_ms=lifetime_ms, source=source, name=name)


def shown(checkpoint: Checkpoint) -> tuple[str, int, int | None, int, str | None]:
    return (
        str(checkpoint.id),
        checkpoint.manifest_id,
        checkpoint.expire_s or None,
        checkpoint.create_s,
        checkpoint.name,
    )


def shown_by_slatedb(found: Any) -> tuple[str, int, int | None, int, str | None]:
    return (found.id, found.manifest_id, found.expire_time_secs, found.create_time_secs, found.name)


def test_each_makes_refreshes_copies_and_deletes_what_the_other_made(tmp_path: Path) -> None:
    """I9, on one database; both lists are compared after every step."""

    async def scenario() -> None:
        async with opened(open_folder(tmp_path), "db", QUIET) as db:
            await put_all(db, [(b"k", b"1")])
            await flush(db)
        theirs = admin_of_slatedb(tmp_path)
        async with shale.Admin(f"file://{tmp_path}/db") as ours:

            async def agreed() -> list[tuple[Any, ...]]:
                mine = [shown(each) for each in await ours.checkpoints.list()]
                assert mine == [shown_by_slatedb(each) for each in await theirs.list_checkpoints(None)]
                return mine

            a = await theirs.create_detached_checkpoint(options(60_000, name="of slatedb, späť"))
            b = await ours.checkpoints.create("60s", name="of ours, späť")
            assert b.manifest_id == a.manifest_id + 1
            assert len(await agreed()) == 2
            copied = await ours.checkpoints.create(None, a.id, "copy")
            assert copied.manifest_id == a.manifest_id
            again = await theirs.create_detached_checkpoint(options(None, str(b.id), "copy"))
            assert again.manifest_id == b.manifest_id
            assert [each[4] for each in await agreed()] == ["of slatedb, späť", "of ours, späť", "copy", "copy"]
            for name in ("copy", "none", ""):
                mine = [str(each.id) for each in await ours.checkpoints.list(name)]
                assert mine == [each.id for each in await theirs.list_checkpoints(name)]
            await theirs.refresh_checkpoint(str(b.id), None)
            assert (await ours.checkpoints.refresh(a.id, "1h")).expire_s > 0
            found = {each[0]: each[2] for each in await agreed()}
            assert found[str(b.id)] is None
            await theirs.delete_checkpoint(str(copied.id))
            assert await ours.checkpoints.delete(again.id)
            assert {each[0] for each in await agreed()} == {a.id, str(b.id)}
            with pytest.raises(UnknownCheckpoint):
                await ours.checkpoints.refresh(copied.id)
            with pytest.raises(CheckpointMissing):
                await ours.checkpoints.create(source=copied.id)
            assert not await ours.checkpoints.delete(UNKNOWN)

    anyio.run(scenario)


def test_readers_of_both_read_checkpoints_of_both(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(open_folder(tmp_path), "db", QUIET) as db:
            await put_all(db, [(b"k", b"1")])
            await flush(db)
        made = await admin_of_slatedb(tmp_path).create_detached_checkpoint(options())
        async with shale.Db.open(f"file://{tmp_path}/db") as ours:
            await ours.put(b"k", b"2")
            flushed = await ours.checkpoint(name="all")
            await ours.put(b"k", b"3")
            await (await ours.put(b"l", b"4")).durable()
            durable = await ours.checkpoint(scope="durable")
            await ours.put(b"k", b"5")
        expected = {made.id: {b"k": b"1"}, str(flushed.id): {b"k": b"2"}, str(durable.id): {b"k": b"3", b"l": b"4"}}
        for checkpoint_id, rows in expected.items():
            async with DbReader.open(f"file://{tmp_path}/db", checkpoint=checkpoint_id) as reader:
                assert {row.key: row.value async for row in reader.scan()} == rows
            builder = slate.DbReaderBuilder("db", open_folder(tmp_path))
            builder.with_reader_mode(slate.ReaderMode.CHECKPOINT(checkpoint_id))
            theirs = await builder.build()
            try:
                assert {row[0]: row[1] for row in await scanned(theirs)} == rows
            finally:
                await theirs.shutdown()

    anyio.run(scenario)


def test_a_manifest_of_ours_survives_slatedbs_next_one(tmp_path: Path) -> None:
    """I10: SlateDB's version after Shale's differs only in the checkpoint that it adds."""

    async def scenario() -> None:
        async with shale.Db.open(f"file://{tmp_path}/db") as db:
            for number in range(3):
                await db.put(b"k%d" % number, b"v" * 100)
                await db.flush("memtable")
            await db.checkpoint(name="ours", lifetime="1h")
            await db.checkpoint(name="", lifetime=None)
            await db.checkpoint()
        files = DatabaseFiles(tmp_path, "db")
        before = files.latest()
        made = await admin_of_slatedb(tmp_path).create_detached_checkpoint(options(name="theirs"))
        after = files.latest()
        (added,) = [each for each in after.checkpoints if str(each.id) == made.id]
        assert replace(after, checkpoints=tuple(each for each in after.checkpoints if each != added)) == before
        assert decode_manifest(encode_manifest(after)) == after
        listed = {each.name: each for each in after.checkpoints}
        assert set(listed) == {"ours", "", None, "theirs"}

    anyio.run(scenario)


Call = Callable[[], Awaitable[Any]]


async def program(api: Any, folder: Path, seed: int) -> list[Any]:
    """Run random calls; return their results, with ids as numbers in the order of their first appearance."""
    rng = random.Random(seed)
    settings = api.Settings.default()
    for name, value in {"garbage_collector_options": None, "compactor_options": None}.items():
        settings.set(name, json.dumps(value))
    object_store = file_store(api, folder)
    builder = api.DbBuilder("db", object_store)
    builder.with_settings(settings)
    db = await builder.build()
    await db.put(b"k", b"v")
    await db.shutdown()
    admin = api.AdminBuilder("db", object_store).build()
    known: list[str] = [UNKNOWN]
    said: list[Any] = []
    for _ in range(25):
        op = rng.choice(("create", "create", "copy", "refresh", "delete", "list", "manifest", "range", "bad"))
        subject, lifetime = rng.choice(known), rng.choice((None, 60_500, 999_999_500))
        calls: dict[str, Call] = {
            "create": lambda life=lifetime: admin.create_detached_checkpoint(options(life, name="n", api=api)),  # type: ignore[misc]
            "copy": lambda life=lifetime, of=subject: admin.create_detached_checkpoint(options(life, of, api=api)),  # type: ignore[misc]
            "refresh": lambda life=lifetime, of=subject: admin.refresh_checkpoint(of, life),  # type: ignore[misc]
            "delete": lambda of=subject: admin.delete_checkpoint(of),  # type: ignore[misc]
            "list": lambda: admin.list_checkpoints(rng.choice((None, "n", "", "x"))),
            "manifest": lambda: admin.read_manifest(rng.choice((None, 1, 2, 99))),
            "range": lambda: admin.list_manifests(rng.choice((None, 2)), rng.choice((None, 4))),
            "bad": lambda: admin.delete_checkpoint("no uuid"),
        }
        said.append((op, known.index(subject), lifetime is None, await outcome(calls[op], known)))
    return said


def folder_of(parent: Path, api: Any) -> Path:
    """Return a folder for one of the packages."""
    folder = parent / api.__name__
    folder.mkdir()
    return folder


async def outcome(call: Call, known: list[str]) -> Any:
    """Return the result of a call as plain data, without times and version numbers that a skipped write changes."""
    try:
        value = await call()
    except Exception as error:  # noqa: BLE001 - both packages have classes of their own
        return type(error).__name__
    if hasattr(value, "manifest_id"):
        known.append(value.id)
        return len(known)
    if isinstance(value, list) and value and hasattr(value[0], "create_time_secs"):
        return [(known.index(each.id), each.expire_time_secs is None, each.name) for each in value]
    if isinstance(value, list):
        return "some" if value else "none"
    return None if value is None else (value.initialized, value.writer_epoch)


@pytest.mark.parametrize("seed", range(6))
def test_administrators_of_checkpoints_say_the_same(seed: int, tmp_path: Path) -> None:
    """Version ids differ: SlateDB writes one for a deletion without effect (docs/reference/protocol.md 9.3)."""
    theirs, mine = (asyncio.run(program(api, folder_of(tmp_path, api), seed)) for api in (slate, compat))
    assert mine == theirs


def test_unknown_checkpoints_are_the_same_errors(tmp_path: Path) -> None:
    async def ask(api: Any) -> list[str]:
        folder = folder_of(tmp_path, api)
        async with shale.Db.open(f"file://{folder}/db") as db:
            await db.put(b"k", b"v")
        admin = api.AdminBuilder("db", file_store(api, folder)).build()
        said = []
        for call in (
            lambda: admin.refresh_checkpoint(UNKNOWN, 5),
            lambda: admin.create_detached_checkpoint(options(None, UNKNOWN, api=api)),
            lambda: admin.create_detached_checkpoint(options(None, "x", api=api)),
        ):
            with pytest.raises(api.Error) as caught:
                await call()
            said.append(f"{type(caught.value).__name__}: {caught.value.message}")
        await admin.delete_checkpoint(UNKNOWN)
        return said

    theirs, mine = (asyncio.run(ask(api)) for api in (slate, compat))
    assert mine[1] == theirs[1]
    assert [each.partition(":")[0] for each in mine] == [each.partition(":")[0] for each in theirs]
    assert UUID(UNKNOWN)


@pytest.mark.parametrize(("lifetime_ms", "accepted"), [(1999, False), (2000, True), (2001, True)])
def test_slatedb_accepts_a_lifetime_of_exactly_two_polls(lifetime_ms: int, accepted: bool, tmp_path: Path) -> None:
    """The document asks for more than two polls, and so does Shale's own reader; the package follows SlateDB."""

    async def is_accepted(api: Any) -> bool:
        folder = folder_of(tmp_path, api)
        async with shale.Db.open(f"file://{folder}/db", writer_checkpoint=False) as db:
            await db.put(b"k", b"v")
        builder = api.DbReaderBuilder("db", file_store(api, folder))
        builder.with_options(
            api.ReaderOptions(
                manifest_poll_interval_ms=1000,
                checkpoint_lifetime_ms=lifetime_ms,
                max_memtable_bytes=1 << 20,
                skip_wal_replay=False,
                object_store_max_retries=None,
            )
        )
        try:
            reader = await builder.build()
        except api.Error:
            return False
        await reader.shutdown()
        return True

    assert [asyncio.run(is_accepted(api)) for api in (slate, compat)] == [accepted] * 2
    if accepted and lifetime_ms == 2000:
        with pytest.raises(CheckpointLifetimeTooShort):
            DbReader.open("memory:///db", manifest_poll_interval="1s", checkpoint_lifetime="2s")


@pytest.mark.slow
def test_slatedb_reads_and_keeps_the_checkpoint_of_a_writer_of_ours(tmp_path: Path) -> None:
    """SlateDB drops its metadata and keeps its name, which is what Shale reads."""

    async def scenario() -> None:
        files = DatabaseFiles(tmp_path, "db")
        async with shale.Db.open(f"file://{tmp_path}/db", writer_endpoint="http://a:1") as db:
            await db.put(b"k", b"1")
            await db.flush("memtable")
            (own,) = files.latest().checkpoints
            admin = admin_of_slatedb(tmp_path)
            assert [shown_by_slatedb(each) for each in await admin.list_checkpoints(None)] == [shown(own)]
            made = await admin.create_detached_checkpoint(options(name="theirs"))
            status = writer_status(files.latest(), 0)
            assert (status.presence, status.epoch) == (WriterPresence.SIGNED, 1)
            assert (status.identity or WriterIdentity(holder="", host="", since_s=0)).endpoint == "http://a:1"
            await db.put(b"k", b"2")
            await db.flush("memtable")
            assert {each.writer_epoch for each in files.latest().checkpoints} == {None, 1}
        assert [str(each.id) for each in files.latest().checkpoints] == [made.id]
        async with shale.Db.open(f"file://{tmp_path}/db") as db:
            await db.put(b"k", b"3")
            await db.flush("memtable")
            async with opened(open_folder(tmp_path), "db", QUIET):
                taken_over = writer_status(files.latest(), 0)
                assert (taken_over.presence, taken_over.identity) == (WriterPresence.UNKNOWN, None)
            with pytest.raises(FencedError):
                await db.refresh()
            with pytest.raises(FencedError):
                await db.close()

    anyio.run(scenario)
