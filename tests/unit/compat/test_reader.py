"""Readers, the WAL reader and the administrator of SlateDB's interface."""

import asyncio
from pathlib import Path

import pytest

import shale
from shale.compat.slatedb import uniffi as slatedb
from shale.compat.slatedb.store import adapter_of
from shale.protocol.wal_store import WalStore
from tests.unit.compat.harness import EVERYTHING, PATH, TO_L0, TO_WAL, memory, merging, opened, opened_reader

Error = slatedb.Error
NOWHERE = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def test_a_reader_follows_is_pinned_or_sees_the_latest() -> None:
    async def main() -> None:
        store = memory()
        admin = slatedb.AdminBuilder(PATH, store).build()
        async with opened(store, merging) as db:
            await db.merge(b"k", b"old")
            await db.flush_with_options(TO_L0)
            options = slatedb.CheckpointOptions(lifetime_ms=60_000, source=None, name="kept")
            kept = await admin.create_detached_checkpoint(options)
            await db.merge(b"k", b"new")
            await db.flush_with_options(TO_WAL)

            def pinned(builder: slatedb.DbReaderBuilder) -> None:
                merging(builder)
                builder.with_reader_mode(slatedb.ReaderMode.CHECKPOINT(kept.id))

            def latest(builder: slatedb.DbReaderBuilder) -> None:
                merging(builder)
                builder.with_reader_mode(slatedb.ReaderMode.FOLLOW_LATEST())

            for configure, value in ((pinned, b"old"), (latest, b"oldnew"), (merging, b"oldnew")):
                async with opened_reader(store, configure) as reader:
                    assert await reader.get(b"k") == value
                    scan = await reader.scan(EVERYTHING)
                    assert [row.value for row in await scan.next_batch(2)] == [value]
                    assert reader.status().close_reason is None

    asyncio.run(main())


def test_a_reader_says_what_is_missing() -> None:
    async def main() -> None:
        store = memory()
        with pytest.raises(Error.Data, match="failed to find latest transactional object"):
            await slatedb.DbReaderBuilder(PATH, store).build()
        async with opened(store):
            builder = slatedb.DbReaderBuilder(PATH, store)
            with pytest.raises(Error.Invalid, match="invalid checkpoint_id UUID"):
                builder.with_reader_mode(slatedb.ReaderMode.CHECKPOINT("no"))
            builder.with_reader_mode(slatedb.ReaderMode.CHECKPOINT(NOWHERE))
            with pytest.raises(Error.Data, match=f"checkpoint missing.*{NOWHERE}"):
                await builder.build()
            with pytest.raises(Error.Invalid, match="already been consumed"):
                await builder.build()

    asyncio.run(main())


def test_a_closed_reader_says_so() -> None:
    async def main() -> None:
        store = memory()
        async with opened(store), opened_reader(store) as reader:
            await reader.shutdown()
            assert reader.status().close_reason is slatedb.CloseReason.CLEAN
            for call in (reader.get(b"k"), reader.flush_cache_to_disk()):
                with pytest.raises(Error.Closed, match="db is closed"):
                    await call
            await reader.shutdown()
            await reader.evict_cached_sst(slatedb.SsTableId(value="01ARZ3NDEKTSV4RRFFQ69G5FAV"))

    asyncio.run(main())


def test_the_wal_is_read_in_order_and_as_it_grows() -> None:
    async def main() -> None:
        store = memory()
        reader = slatedb.SlateDbWalReader(PATH, store)
        async with opened(store, merging) as db:
            await db.put(b"a", b"1")
            await db.delete(b"a")
            await db.merge(b"m", b"x")
            await db.flush_with_options(TO_WAL)
            last = await reader.last_wal_file_id(0)
            assert await reader.last_wal_file_id(last) == last
            scan = await reader.iterator(1)
            files = [await scan.next() for _ in range(last)]
            assert [file.last_consumed_wal_file_id for file in files if file is not None] == [*range(1, last + 1)]
            rows = [row for file in files if file is not None for row in file.rows]
            kind = slatedb.RowEntryKind
            assert [(row.kind, row.key, row.value) for row in rows] == [
                (kind.VALUE, b"a", b"1"),
                (kind.TOMBSTONE, b"a", None),
                (kind.MERGE, b"m", b"x"),
            ]
            waiting = asyncio.ensure_future(scan.next())
            await db.put(b"later", b"2")
            await db.flush_with_options(TO_WAL)
            arrived = await waiting
            assert arrived is not None
            assert [row.key for row in arrived.rows] == [b"later"]
        with pytest.raises(Error.Invalid, match="max_fetch_tasks must be greater than zero"):
            slatedb.SlateDbWalReader.with_options(PATH, store, slatedb.SlateDbWalReaderOptions(max_fetch_tasks=0))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({}, 4, id="defaults"),
        pytest.param({"max_fetch_tasks": 2}, 2, id="two at a time"),
        pytest.param({"max_fetch_tasks": 1}, 1, id="one at a time"),
        pytest.param({"max_buffered_bytes": 1}, 1, id="little memory"),
        pytest.param({"max_buffered_bytes": 7}, 4, id="memory for three files, once a size is known"),
    ],
)
def test_wal_files_are_read_at_the_same_time(
    limits: dict[str, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_flight: list[int] = []
    reads = 0
    read = WalStore.read

    async def counted(self: WalStore, wal_id: int) -> memoryview | None:
        nonlocal reads
        reads += 1
        in_flight.append(reads)
        await asyncio.sleep(0)
        reads -= 1
        return await read(self, wal_id)

    async def main() -> None:
        store = memory()
        async with opened(store) as db:
            for number in range(10):
                await db.put(b"%d" % number, b"v")
                await db.flush_with_options(TO_WAL)
            monkeypatch.setattr(WalStore, "read", counted)
            options = slatedb.SlateDbWalReaderOptions(**limits)
            reader = slatedb.SlateDbWalReader.with_options(PATH, store, options)
            last = await reader.last_wal_file_id(0)
            scan = await reader.iterator(1)
            files = [await scan.next() for _ in range(last)]
            assert [file.last_consumed_wal_file_id for file in files if file is not None] == [*range(1, last + 1)]
            keys = [row.key for file in files if file is not None for row in file.rows]
            assert keys == [b"%d" % number for number in range(10)]
            assert max(in_flight) == most
            assert len(in_flight) == last, "each file is read once"
            if limits.get("max_buffered_bytes") == 7:
                assert max(in_flight[4:]) == 3

    asyncio.run(main())


def test_rows_before_a_damaged_wal_file_are_returned_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_PROVIDER", "local")
    monkeypatch.setenv("LOCAL_PATH", str(tmp_path))

    async def main() -> None:
        store = slatedb.ObjectStore.from_env(None)
        async with opened(store) as db:
            for key in (b"a", b"b", b"c"):
                await db.put(key, b"1")
                await db.flush_with_options(TO_WAL)
            (tmp_path / f"{PATH}/wal/{3:020}.sst").write_bytes(b"no WAL file at all")
            scan = await slatedb.SlateDbWalReader(PATH, store).iterator(1)
            found = [await scan.next(), await scan.next()]
            assert [row.key for file in found if file is not None for row in file.rows] == [b"a"]
            for _ in range(2):
                with pytest.raises(Error.Data):
                    await scan.next()

    asyncio.run(main())


def test_the_wal_of_a_database_that_is_not_there_is_not_waited_for() -> None:
    async def main() -> None:
        store = memory()
        reader = slatedb.SlateDbWalReader(PATH, store)
        scan = await reader.iterator(1)
        for call in (reader.last_wal_file_id(0), scan.next()):
            with pytest.raises(Error.Data, match="failed to find latest transactional object"):
                await asyncio.wait_for(call, 10)
        for call in (reader.last_wal_file_id(-1), reader.iterator(1 << 64)):
            with pytest.raises(ValueError, match="u64 requires"):
                await call
        async with opened(store):
            beside = slatedb.SlateDbWalReader.with_wal_object_store(PATH, store, memory())
            assert await beside.last_wal_file_id(7) == 7

    asyncio.run(main())


def test_a_wal_file_that_is_gone_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_PROVIDER", "local")
    monkeypatch.setenv("LOCAL_PATH", str(tmp_path))

    async def main() -> None:
        store = slatedb.ObjectStore.from_env(None)
        async with opened(store) as db:
            await db.put(b"a", b"1")
            await db.flush_with_options(TO_WAL)
            (tmp_path / f"{PATH}/wal/{1:020}.sst").unlink()
            with pytest.raises(Error.Data):
                await (await slatedb.SlateDbWalReader(PATH, store).iterator(1)).next()

    asyncio.run(main())


def test_an_administrator_reads_versions_and_keeps_checkpoints() -> None:
    async def main() -> None:
        store = memory()
        admin = slatedb.AdminBuilder(PATH, store).build()
        assert await admin.read_manifest(None) is None
        assert await admin.list_manifests(None, None) == []
        assert await admin.read_compactions(None) is None
        with pytest.raises(Error.Data, match="failed to find latest"):
            await admin.read_compactor_state_view()
        async with opened(store) as db:
            first = await db.put(b"k", b"v")
            await db.flush_with_options(TO_L0)
            newest = await admin.read_manifest(None)
            assert newest is not None
            assert newest.last_l0_seq == first.seqnum()
            assert newest.l0[0].sst.info.first_entry == b"k"
            versions = [found.id for found in await admin.list_manifests(None, None)]
            assert versions == [*range(1, newest.id + 1)]
            assert [found.id for found in await admin.list_manifests(2, 3)] == [2]
            assert await admin.list_manifests(3, 2) == []
            assert await admin.read_manifest(999) is None
            second = await admin.get_timestamp_for_sequence(first.seqnum(), round_up=True)
            assert second is not None
            assert await admin.get_sequence_for_timestamp(second + 100, round_up=False) == first.seqnum()
            with pytest.raises(Error.Invalid, match="invalid timestamp seconds"):
                await admin.get_sequence_for_timestamp(2**63 - 1, round_up=False)

            made = await admin.create_detached_checkpoint(
                slatedb.CheckpointOptions(lifetime_ms=60_000, source=None, name="one")
            )
            (listed,) = await admin.list_checkpoints("one")
            assert (listed.id, listed.manifest_id) == (made.id, made.manifest_id)
            assert await admin.list_checkpoints("") == []
            again = await admin.create_detached_checkpoint(
                slatedb.CheckpointOptions(lifetime_ms=None, source=made.id, name=None)
            )
            assert again.manifest_id == made.manifest_id
            await admin.refresh_checkpoint(made.id, None)
            (renewed,) = await admin.list_checkpoints("one")
            assert renewed.expire_time_secs is None
            await admin.delete_checkpoint(made.id)
            await admin.delete_checkpoint(NOWHERE)
            assert [found.id for found in await admin.list_checkpoints(None)] == [again.id]
            with pytest.raises(Error.Data):
                await admin.refresh_checkpoint(NOWHERE, 5)

    asyncio.run(main())


def test_the_collector_runs_once_when_asked() -> None:
    async def main() -> None:
        store = memory()
        admin = slatedb.AdminBuilder(PATH, store).build()
        await admin.run_gc_once(None)
        async with opened(store) as db:
            for number in range(4):
                await db.put(b"k", b"%d" % number)
                await db.flush_with_options(TO_L0)
            before = len(await admin.list_manifests(None, None))
            swept = slatedb.GarbageCollectorDirectoryOptions(min_age_ms=0, dry_run=False)
            await admin.run_gc_once(slatedb.GarbageCollectorOptions(manifest_options=swept))
            assert len(await admin.list_manifests(None, None)) < before
            assert await db.get(b"k") == b"3"

    asyncio.run(main())


def test_a_database_without_checkpoints_is_deleted() -> None:
    """SlateDB deletes it under live checkpoints as well; that is refused here."""

    async def main() -> None:
        store, wal_store = memory(), memory()
        admin = slatedb.AdminBuilder(PATH, store).build()
        async with opened(store) as db:
            await db.put(b"k", b"v")
        kept = await admin.create_detached_checkpoint(
            slatedb.CheckpointOptions(lifetime_ms=None, source=None, name=None)
        )
        with pytest.raises(Error.Invalid, match=kept.id):
            await admin.delete_db(True)
        await admin.delete_checkpoint(kept.id)
        listed = await admin.delete_db(False)
        assert f"{PATH}/manifest/{1:020}.manifest" in listed
        assert set(await admin.delete_db(True)) >= {*listed, f"{PATH}/.deleting"}
        assert await admin.delete_db(False) == []
        assert await admin.delete_db(True) == []
        builder = slatedb.AdminBuilder(PATH, store)
        builder.with_wal_object_store(wal_store)
        assert await builder.build().delete_db(False) == []

    asyncio.run(main())


def test_a_clone_is_made_where_its_administrator_has_the_log() -> None:
    async def main() -> None:
        store, wal_store = memory(), memory()
        db = await shale.Db.open(PATH, store=adapter_of(store), wal_store=adapter_of(wal_store))
        await db.put(b"k", b"in L0")
        await db.flush("memtable")
        await db.put(b"l", b"in the log")
        await db.close(flush="wal")
        source = slatedb.CloneSourceSpec(path=PATH, checkpoint=None, projection_range=None)
        for path, by_admin in (("one", True), ("other", False)):
            builder = slatedb.AdminBuilder(path, store)
            if by_admin:
                builder.with_wal_object_store(wal_store)
            clone = builder.build().create_clone_builder_from_source(source)
            if not by_admin:
                clone.with_wal_object_store(wal_store)
            await clone.build()
            reading = slatedb.DbReaderBuilder(path, store)
            reading.with_wal_object_store(wal_store)
            reader = await reading.build()
            assert [await reader.get(key) for key in (b"k", b"l")] == [b"in L0", b"in the log"]
            await reader.shutdown()

    asyncio.run(main())


def test_what_is_not_there_yet_says_so() -> None:
    async def main() -> None:
        store = memory()
        admin = slatedb.AdminBuilder(PATH, store).build()
        async with opened(store) as db:
            await db.put(b"k", b"v")
        source = slatedb.CloneSourceSpec(path=PATH, checkpoint=None, projection_range=None)
        clone = admin.create_clone_builder_from_source(source)
        with pytest.raises(Error.Invalid, match="the same place"):
            await clone.build()
        with pytest.raises(Error.Invalid, match="already been consumed"):
            clone.with_source(source)
        with pytest.raises(Error.Invalid, match="invalid compaction_id ULID"):
            await admin.read_compaction("no", None)

    asyncio.run(main())
