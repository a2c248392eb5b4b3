"""Backups and restores on stores in memory."""

from uuid import UUID

import pytest

import shale
from shale.backup.document import ObjectKind
from shale.errors import CorruptionError, InvalidDbState, InvalidRequestError, NotFoundError
from shale.format.names import attempt_range_key, compacted_prefix, manifest_prefix, visible_range_key
from shale.store.memory import MemoryStore
from tests.unit.backup.databases import admin, rows, write

pytestmark = pytest.mark.anyio
ROWS = {f"k{number}": f"value {number}" for number in range(20)}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def stores():
    """Return the store of the database, of the backups, and of the restored database."""
    return tuple(MemoryStore(url=f"memory://{name}/") for name in ("main", "backups", "other"))


async def created(store, backups, path="db", *, keep_wal=True, **options):
    async with admin(store, path, **options) as made:
        return await made.backups(store=backups, path="b").create(keep_wal=keep_wal)


async def restored(store, backups, path="db", backup_id=None, **options):
    restore = {name: options.pop(name) for name in ("to_seq", "in_place") if name in options}
    async with admin(store, path, **options) as made:
        return await made.backups(store=backups, path="b").restore(backup_id, **restore)


async def test_a_restored_database_has_all_durable_rows_and_stays_apart_from_its_source(stores):
    main, backups, other = stores
    await write(main, ROWS)
    await write(main, {"k0": "new", "wal": "only"}, flush="wal")
    backup = await created(main, backups)
    assert (await rows(main))["wal"] == "only"
    result = await restored(other, backups)
    assert await rows(other) == await rows(main) == {**ROWS, "k0": "new", "wal": "only"}
    assert (result.backup_id, result.manifest_id, result.undo_checkpoint) == (backup.id, 2, None)
    await write(other, {"later": "write"})
    assert "later" not in await rows(main)
    async with admin(other) as made:
        assert (await made.verify(deep=True)).is_sound


async def test_the_checkpoint_of_a_backup_is_deleted_at_its_end_and_a_given_one_stays(stores):
    main, backups, _ = stores
    await write(main, ROWS)
    await created(main, backups)
    async with admin(main) as made:
        assert await made.checkpoints.list() == ()
        kept = await made.checkpoints.create(name="nightly")
        await write(main, {"later": "row"})
        backup = await made.backups(store=backups, path="b").create(checkpoint="nightly")
        assert backup.checkpoint_id == kept.id
        assert await made.checkpoints.list() == (kept,)


async def test_a_second_backup_copies_only_what_is_new(stores):
    main, backups, other = stores
    await write(main, ROWS)
    first = await created(main, backups)
    await write(main, {"more": "rows"})
    second = await created(main, backups)
    assert {each.key for each in first.of_kind(ObjectKind.SST)} < {each.key for each in second.objects}
    added = [each for each in second.of_kind(ObjectKind.SST) if each not in first.objects]
    assert len(added) == 1
    assert second.copied_bytes < first.size
    third = await created(main, backups, keep_wal=False)
    assert third.wal == {}
    assert [each.kind for each in third.objects if each not in second.objects] == [ObjectKind.MANIFEST]
    await restored(other, backups, backup_id=first.id)
    assert await rows(other) == ROWS


async def test_a_damaged_copy_is_found_by_each_depth_and_copied_again_by_the_next_backup(stores):
    main, backups, other = stores
    await write(main, ROWS)
    backup = await created(main, backups)
    [sst] = backup.of_kind(ObjectKind.SST)
    key = f"b/{sst.key}"
    good = bytes((await backups.get(key)).data)
    async with admin(main) as made:
        place = made.backups(store=backups, path="b")
        assert (await place.verify()).is_sound
        deep = await place.verify(deep=True)
        assert (deep.is_sound, deep.depth, deep.rows) == (True, "deep", len(ROWS))
        await backups.put(key, good[:-9] + b"x" + good[-8:])
        assert (await place.verify(quick=True)).is_sound
        report = await place.verify()
        assert [finding.key for finding in report.findings] == [key]
        with pytest.raises(CorruptionError, match="SHA-256"):
            await restored(other, backups)
        assert await other.list(compacted_prefix("db")) == []
        with pytest.raises(InvalidDbState):
            await rows(other)
        await backups.put(key, good[:-1])
        assert "bytes, not" in (await place.verify(quick=True)).findings[0].message
        await place.create()
        assert (await place.verify(backup.id)).is_sound
        await backups.delete(key)
        assert (await place.verify()).findings[0].message == "it is missing"
    # The interrupted restore continues once the copy is there again.
    await backups.put(key, good)
    await restored(other, backups)
    assert await rows(other) == ROWS


async def test_a_damaged_document_is_an_error(stores):
    main, backups, _ = stores
    await write(main, ROWS)
    backup = await created(main, backups)
    key = f"b/backups/{backup.id}.json"
    text = bytes((await backups.get(key)).data)
    await backups.put(key, text.replace(b'"copied_bytes": ', b'"copied_bytes": 1'))
    async with admin(main) as made:
        with pytest.raises(CorruptionError, match="checksum does not match"):
            await made.backups(store=backups, path="b").list()


async def test_a_clone_is_copied_with_the_ssts_of_its_parent(stores):
    main, backups, other = stores
    await write(main, ROWS, "parent")
    async with admin(main, "team/clone") as made:
        await made.clones.create("parent")
    await write(main, {"own": "row"}, "team/clone")
    backup = await created(main, backups, "team/clone")
    folders = {each.key.rpartition("/")[0] for each in backup.of_kind(ObjectKind.SST)}
    assert folders == {"objects/parent/compacted", "objects/team/clone/compacted"}
    await restored(other, backups, "clone")
    assert await rows(other, "clone") == {**ROWS, "own": "row"}
    async with admin(other, "clone") as made:
        assert (await made.states.manifest()).value.external_dbs == ()


async def test_the_range_of_a_projected_clone_is_restored(stores):
    main, backups, other = stores
    await write(main, ROWS, "parent")
    async with admin(main, "half") as made:
        await made.clones.create(shale.admin.clones.source("parent", start=b"k5"))
    await created(main, backups, "half")
    await restored(other, backups, "half")
    assert await rows(other, "half") == {key: value for key, value in ROWS.items() if key >= "k5"}
    assert await other.get("half/gc/visible_range") is not None


async def test_a_separate_wal_store_is_read_and_written(stores):
    main, backups, other = stores
    log, new_log = MemoryStore(), MemoryStore()
    await write(main, ROWS, wal_store=log, flush="wal")
    backup = await created(main, backups, wal_store=log)
    assert backup.wal
    await restored(other, backups, wal_store=new_log)
    assert await rows(other, wal_store=new_log) == ROWS
    assert await other.list("db/wal/") == []


async def test_an_encrypted_database_is_copied_and_restored_without_its_keys(stores):
    main, backups, other = stores
    keys = shale.AesGcm({"2026-11": b"k" * 32})
    last = await write(main, ROWS, block_transformer=keys)
    await write(main, {"wal": "row"}, block_transformer=keys, flush="wal")
    backup = await created(main, backups)
    assert backup.encryption_keys == ("2026-11",)
    await restored(other, backups)
    assert await rows(other, block_transformer=keys) == {**ROWS, "wal": "row"}
    await restored(other, backups, "cut", to_seq=last, block_transformer=keys)
    assert await rows(other, "cut", block_transformer=keys) == ROWS
    plain = await created_plain(main, backups)
    assert plain.encryption_keys == ()


async def created_plain(main, backups):
    await write(main, ROWS, "plain")
    return await created(main, backups, "plain")


async def test_a_restore_reaches_every_sequence_number_between_two_backups(stores):
    main, backups, other = stores
    written = {}
    first_seq = await write(main, {"a": "1"})
    states = {}
    for number in range(3):
        for key in ("x", "y"):
            written[key] = str(number)
            seq = await write(main, {key: str(number)}, flush="wal")
            states[seq] = dict(written)
        if number == 1:
            await created(main, backups)
    await write(main, {"z": "flushed"})
    await created(main, backups)
    for seq, expected in states.items():
        path = f"at-{seq}"
        result = await restored(other, backups, path, to_seq=seq)
        assert (result.last_seq, await rows(other, path)) == (seq, {"a": "1", **expected})
    with pytest.raises(NotFoundError, match="end at or before sequence number"):
        await restored(other, backups, "early", to_seq=0)
    assert first_seq
    with pytest.raises(InvalidRequestError, match="the WAL files in the backups end"):
        await restored(other, backups, "late", to_seq=10_000)
    assert await other.list(manifest_prefix("late")) == []


async def test_a_batch_is_restored_as_a_whole(stores):
    main, backups, other = stores
    await write(main, {"a": "1"})
    db = await shale.Db.open("db", store=main)
    for number in range(2):
        async with db.batch() as batch:
            batch.put(b"x", str(number).encode())
            batch.put(b"y", str(number).encode())
    await db.close(flush="wal")
    backup = await created(main, backups)
    await restored(other, backups, to_seq=backup.last_l0_seq + 1)
    assert await rows(other) == {"a": "1", "x": "0", "y": "0"}


async def test_wal_files_of_another_database_at_the_same_path_are_not_joined(stores):
    main, backups, other = stores
    await write(main, {"a": "1"})
    last = await write(main, {"b": "2"}, flush="wal")
    await created(main, backups)
    async with admin(main) as made:
        await made.destroy(confirm=True, force=True)
    for number in range(4):
        await write(main, {"other": str(number)}, flush="wal")
    await created(main, backups)
    async with admin(main) as made:
        old = (await made.backups(store=backups, path="b").list())[0]
    await restored(other, backups, "old", old.id, to_seq=last)
    assert await rows(other, "old") == {"a": "1", "b": "2"}
    with pytest.raises(InvalidRequestError, match="the WAL files in the backups end"):
        await restored(other, backups, "wrong", old.id, to_seq=last + 1)


async def test_a_database_is_replaced_only_in_place_and_its_state_before_can_be_restored(stores):
    main, backups, _ = stores
    await write(main, ROWS)
    await write(main, {"wal": "row"}, flush="wal")
    await created(main, backups)
    await write(main, {"k1": "wrong", "wrong": "row"})
    wrong = await rows(main)
    with pytest.raises(InvalidDbState, match="in_place"):
        await restored(main, backups)
    assert await rows(main) == wrong
    result = await restored(main, backups, in_place=True)
    assert await rows(main) == {**ROWS, "wal": "row"}
    async with admin(main, "undone") as made:
        await made.clones.create(shale.admin.clones.source("db", checkpoint=result.undo_checkpoint))
    assert await rows(main, "undone") == wrong
    await write(main, {"after": "restore"})
    assert await rows(main) == {**ROWS, "wal": "row", "after": "restore"}
    async with admin(main) as made:
        assert (await made.verify(deep=True)).findings == ()


async def test_a_live_writer_blocks_a_restore_and_a_silent_one_is_fenced(stores):
    main, backups, _ = stores
    await write(main, ROWS)
    await created(main, backups)
    async with shale.Db.open("db", store=main, writer_checkpoint=True) as db:
        await db.put(b"a", b"b")
        with pytest.raises(InvalidDbState, match="is alive"):
            await restored(main, backups, in_place=True)
        assert await db.get(b"a") == b"b"
    silent = await shale.Db.open("db", store=main, writer_checkpoint=False)
    await silent.put(b"lost", b"row")
    await restored(main, backups, in_place=True)
    with pytest.raises(shale.FencedError):
        await (await silent.put(b"late", b"row")).durable()
    with pytest.raises(shale.FencedError):
        await silent.close()
    assert await rows(main) == ROWS


async def test_remains_of_a_lost_database_are_not_mixed_with_a_restored_one(stores):
    main, backups, _ = stores
    await write(main, ROWS, flush="wal")
    await created(main, backups)
    for meta in await main.list(manifest_prefix("db")):
        await main.delete(meta.key)
    with pytest.raises(InvalidDbState, match="without a manifest"):
        await restored(main, backups)
    await restored(main, backups, "db-restored")
    assert await rows(main, "db-restored") == ROWS


async def test_remains_of_a_clone_that_was_given_up_do_not_forbid_a_restore(stores):
    main, backups, _ = stores
    await write(main, ROWS)
    await created(main, backups)
    for key in (visible_range_key("new"), attempt_range_key("new", UUID(int=1))):
        await main.put(key, b"{}")
    await restored(main, backups, "new")
    assert await rows(main, "new") == ROWS


async def test_backups_of_several_databases_share_a_place(stores):
    main, backups, other = stores
    await write(main, {"a": "1"}, "one")
    await write(main, {"b": "2"}, "two")
    first = await created(main, backups, "one")
    await created(main, backups, "two")
    await restored(other, backups, "two")
    assert await rows(other, "two") == {"b": "2"}
    with pytest.raises(InvalidRequestError, match="backups of one, two: give the id"):
        await restored(other, backups, "three")
    await restored(other, backups, "three", str(first.id))
    assert await rows(other, "three") == {"a": "1"}
    with pytest.raises(InvalidRequestError, match="is not the id"):
        await restored(other, backups, "four", "nonsense")
    with pytest.raises(NotFoundError, match="no complete backup"):
        await restored(other, backups, "four", "01ARZ3NDEKTSV4RRFFQ69G5FAV")


async def test_backups_below_the_database_are_refused(stores):
    main, _, _ = stores
    await write(main, ROWS)
    async with admin(main) as made:
        with pytest.raises(InvalidRequestError, match="below the database"):
            await made.backups(store=main, path="db/backups").create()
        await made.backups(store=main, path="db-backups").create()
