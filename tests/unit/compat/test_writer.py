"""The writer of SlateDB's interface."""

import asyncio
import threading

import pytest

from shale.compat.slatedb import uniffi as slatedb
from tests.unit.compat.harness import EVERYTHING, PATH, TO_L0, TO_WAL, memory, merging, opened, settings

Error = slatedb.Error


def test_a_write_is_told_with_its_place_and_found_again() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            first = await db.put(b"k", b"v")
            await first.await_durable()
            row = await db.get_key_value(b"k")
            assert row == slatedb.KeyValue(
                key=b"k", value=b"v", seq=first.seqnum(), create_ts=first.create_ts(), expire_ts=None
            )
            assert db.status().durable_seq >= first.seqnum()
            assert (await db.delete(b"k")).seqnum() == first.seqnum() + 1
            assert await db.get(b"k") is None

    asyncio.run(main())


def test_after_the_end_every_call_says_closed() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            snapshot = await db.snapshot()
            await db.shutdown()
            assert db.status().close_reason is slatedb.CloseReason.CLEAN
            for call in (db.put(b"k", b"v"), db.get(b"k"), db.flush(), db.shutdown(), db.snapshot(), snapshot.get(b"k"),
                         db.scan(EVERYTHING), db.begin(slatedb.IsolationLevel.SNAPSHOT)):  # fmt: skip
                with pytest.raises(Error.Closed) as told:
                    await call
                assert told.value.reason is slatedb.CloseReason.CLEAN
                assert told.value.message == "Closed error: db is closed"

    asyncio.run(main())


def test_a_writer_that_was_followed_says_fenced() -> None:
    async def main() -> None:
        store = memory()
        async with opened(store) as old, opened(store):
            with pytest.raises(Error.Closed) as told:
                await (await old.put(b"k", b"v")).await_durable()
            assert told.value.reason is slatedb.CloseReason.FENCED
            assert "detected newer DB client" in told.value.message
            for _ in range(2):
                await old.shutdown()
                assert old.status().close_reason is slatedb.CloseReason.FENCED
                with pytest.raises(Error.Closed) as told:
                    await old.get(b"k")
                assert told.value.reason is slatedb.CloseReason.FENCED

    asyncio.run(main())


def test_impossible_calls_are_refused_in_the_words_of_the_binding() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            backwards = slatedb.KeyRange(start=b"z", start_inclusive=True, end=b"a", end_inclusive=True)
            empty = slatedb.KeyRange(start=b"a", start_inclusive=True, end=b"a", end_inclusive=False)
            for call, message in (
                (db.put(b"", b"v"), "key cannot be empty"),
                (db.get(b""), "key cannot be empty"),
                (db.scan(backwards), "range start must not be greater than range end"),
                (db.scan_prefix(b"p", empty), "range must be non-empty"),
                (db.warm_sst(slatedb.SsTableId(value="no"), []), "invalid SST ULID: 'no'"),
            ):
                with pytest.raises(Error.Invalid) as told:
                    await call
                assert told.value.message == message
            for call in (db.put("text", b"v"), db.put(b"k", 5), db.write(None)):
                with pytest.raises(TypeError):
                    await call
            put, now = slatedb.PutOptions(ttl=slatedb.Ttl.DEFAULT()), slatedb.WriteOptions()
            late = slatedb.PutOptions(ttl=slatedb.Ttl.EXPIRE_AT_MILLIS(1 << 63))
            for call in (
                db.put_with_options(b"k", b"v", put, slatedb.WriteOptions(seqnum=-1)),
                db.delete_with_options(b"k", slatedb.WriteOptions(seqnum=1 << 64)),
                db.put_with_options(b"k", b"v", late, now),
            ):
                with pytest.raises(ValueError, match="64 requires"):
                    await call

    asyncio.run(main())


def test_a_batch_and_a_builder_are_used_up() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            batch = slatedb.WriteBatch()
            batch.put(b"k", b"v")
            await db.write(batch)
            for call in (lambda: db.write(batch), lambda: _now(batch.put, b"k", b"w")):
                with pytest.raises(Error.Invalid, match="write batch has already been consumed"):
                    await call()
            with pytest.raises(Error.Invalid):
                await db.write(slatedb.WriteBatch())
        builder = slatedb.DbBuilder(PATH, memory())
        await (await builder.build()).shutdown()
        for again in (builder.build, lambda: _now(builder.with_seed, 1)):
            with pytest.raises(Error.Invalid, match="builder has already been consumed"):
                await again()

    asyncio.run(main())


async def _now(call: object, *arguments: object) -> None:
    call(*arguments)  # type: ignore[operator]


def test_a_sequence_number_of_the_callers_goes_with_every_kind_of_write() -> None:
    async def main() -> None:
        async with opened(memory(), merging) as db:
            default = slatedb.Ttl.DEFAULT()
            at = [slatedb.WriteOptions(seqnum=number) for number in (10, 20, 30, 40)]
            assert (await db.put_with_options(b"a", b"1", slatedb.PutOptions(ttl=default), at[0])).seqnum() == 10
            assert (await db.delete_with_options(b"a", at[1])).seqnum() == 20
            assert (await db.merge_with_options(b"a", b"2", slatedb.MergeOptions(ttl=default), at[2])).seqnum() == 30
            transaction = await db.begin(slatedb.IsolationLevel.SNAPSHOT)
            await transaction.put(b"b", b"3")
            handle = await transaction.commit_with_options(at[3])
            assert handle is not None
            assert handle.seqnum() == 40
            with pytest.raises(Error.Invalid):
                await db.delete_with_options(b"a", at[0])

    asyncio.run(main())


def test_lifetimes() -> None:
    async def main() -> None:
        async with opened(memory(), default_ttl_millis=1_000) as db:
            for ttl, lives_ms in (
                (slatedb.Ttl.DEFAULT(), 1_000),
                (slatedb.Ttl.EXPIRE_AFTER_MILLIS(70_000), 70_000),
                (slatedb.Ttl.NO_EXPIRY(), None),
                (slatedb.Ttl.EXPIRE_AFTER_MILLIS(2**64 - 1), None),
            ):
                await db.put_with_options(b"k", b"v", slatedb.PutOptions(ttl=ttl), slatedb.WriteOptions())
                row = await db.get_key_value(b"k")
                assert row is not None
                assert (None if row.expire_ts is None else row.expire_ts - row.create_ts) == lives_ms
            at = slatedb.PutOptions(ttl=slatedb.Ttl.EXPIRE_AT_MILLIS(-5))
            await db.put_with_options(b"k", b"v", at, slatedb.WriteOptions())
            row = await db.get_key_value(b"k")
            assert row is not None
            assert row.expire_ts == -5

    asyncio.run(main())


def test_a_refused_operand_fails_one_call_and_the_writer_goes_on() -> None:
    async def main() -> None:
        async with opened(memory(), merging) as db:
            await db.merge(b"k", b"a")
            await db.merge(b"k", b"b")
            assert await db.get(b"k") == b"ab"
            batch = slatedb.WriteBatch()
            batch.put(b"k", b"x")
            batch.merge(b"k", b"refused")
            with pytest.raises(Error.Invalid) as told:
                await db.write(batch)
            assert told.value.message == "Invalid error: merge operator error (not this one)"
            assert await db.get(b"k") == b"ab"
        async with opened(memory()) as db:
            with pytest.raises(Error.Invalid, match="merge operator missing"):
                await db.merge(b"k", b"a")

    asyncio.run(main())


def test_transactions_conflict_and_end() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            first = await db.begin(slatedb.IsolationLevel.SERIALIZABLE_SNAPSHOT)
            assert await first.get(b"read") is None
            await first.put(b"mine", b"1")
            assert await first.get(b"mine") == b"1"
            own = await first.get_key_value(b"mine")
            assert own is not None
            assert (own.seq, own.create_ts) == (2**64 - 1, 0)
            await db.put(b"read", b"by another")
            with pytest.raises(Error.Transaction) as told:
                await first.commit()
            assert "transaction conflict" in told.value.message
            for call in (first.get(b"k"), first.put(b"k", b"v"), first.commit(), first.rollback()):
                with pytest.raises(Error.Invalid) as over:
                    await call
                assert over.value.message == "transaction has already been completed"
            second = await db.begin(slatedb.IsolationLevel.SNAPSHOT)
            assert await second.commit() is None

    asyncio.run(main())


def test_scans_run_both_ways_and_seek_forward_only() -> None:
    async def main() -> None:
        async with opened(memory()) as db:
            for key in (b"a1", b"a2", b"a3", b"b1"):
                await db.put(key, key)
            await db.flush_with_options(TO_L0)
            scan = await db.scan_prefix(b"a", EVERYTHING)
            assert await scan.next_batch(0) == []
            await scan.seek(b"a2")
            assert (await scan.next()).key == b"a2"  # type: ignore[union-attr]
            for key in (b"a2", b"a1", b"b1", b""):
                with pytest.raises(Error.Invalid):
                    await scan.seek(key)
            assert [row.key for row in await scan.next_batch(9)] == [b"a3"]
            assert await scan.next() is None
            options = slatedb.ScanOptions(
                durability_filter=slatedb.DurabilityLevel.MEMORY,
                dirty=False,
                read_ahead_bytes=0,
                cache_blocks=True,
                max_fetch_tasks=0,
                order=slatedb.IterationOrder.DESCENDING,
            )
            down = await db.scan_with_options(EVERYTHING, options)
            assert [row.key for row in await down.next_batch(2)] == [b"b1", b"a3"]
            with pytest.raises(Error.Invalid, match="not supported for descending scans"):
                await down.seek(b"a1")

    asyncio.run(main())


def test_closing_flushes_as_far_as_it_is_told() -> None:
    async def main() -> None:
        store = memory()
        for number, kind in enumerate((slatedb.FlushType.WAL, slatedb.FlushType.MEM_TABLE, None)):
            async with opened(store, flush_interval="600s") as db:
                await db.put(b"%d" % number, b"v")
                await db.shutdown_with_options(slatedb.CloseOptions(flush_type=kind))
        async with opened(store) as db:
            assert [await db.get(b"%d" % number) for number in range(3)] == [b"v", b"v", None]
        async with opened(memory(), wal_enabled=False) as db:
            with pytest.raises(Error.Invalid, match="WAL"):
                await db.flush_with_options(TO_WAL)
            with pytest.raises(Error.Invalid, match="WAL"):
                await db.shutdown_with_options(slatedb.CloseOptions(flush_type=slatedb.FlushType.WAL))
            assert db.status().close_reason is slatedb.CloseReason.CLEAN

    asyncio.run(main())


def test_impossible_settings_are_refused_by_name() -> None:
    async def main() -> None:
        for changed in ({"l0_flush_parallelism": 0}, {"max_unflushed_bytes": 5}):
            builder = slatedb.DbBuilder(PATH, memory())
            builder.with_settings(settings(**changed))
            with pytest.raises(Error.Invalid, match=f"invalid configuration: {next(iter(changed))}"):
                await builder.build()

    asyncio.run(main())


def test_the_wal_and_what_is_cached_can_live_elsewhere() -> None:
    async def main() -> None:
        main_store, wal_store = memory(), memory()
        cache = slatedb.DbCache.new_moka_cache(
            slatedb.MokaCacheOptions(max_capacity=1 << 20, time_to_live=None, time_to_idle=None)
        )
        split = slatedb.DbCache.new_split_cache(cache, cache)

        def elsewhere(builder: slatedb.DbBuilder) -> None:
            builder.with_wal_object_store(wal_store)
            builder.with_db_cache(split, 1)
            builder.with_sst_block_size(slatedb.SstBlockSize.BLOCK1_KIB)
            builder.with_filter_policies([slatedb.FilterPolicy.bloom(12)])

        async with opened(main_store, elsewhere) as db:
            await db.put(b"k", b"v")
            await db.flush_with_options(TO_WAL)
            wal = slatedb.SlateDbWalReader.with_wal_object_store(PATH, main_store, wal_store)
            assert await wal.last_wal_file_id(0) == 2
            await db.flush_with_options(TO_L0)
            manifest = await slatedb.AdminBuilder(PATH, main_store).build().read_manifest(None)
            assert manifest is not None
            (view,) = manifest.l0
            data = slatedb.CacheTarget.DATA(EVERYTHING)
            await db.warm_sst(view.sst.id, [slatedb.CacheTarget.INDEX(), data])
            await db.evict_cached_sst(view.sst.id)
            await db.flush_cache_to_disk()
            assert await db.get(b"k") == b"v"

    asyncio.run(main())


def test_other_threads_with_loops_of_their_own_may_use_a_handle() -> None:
    async def elsewhere(db: slatedb.Db) -> None:
        for number in range(20):
            await (await db.put(b"%s %d" % (threading.current_thread().name.encode(), number), b"v")).await_durable()
        assert await db.get(threading.current_thread().name.encode() + b" 0") == b"v"
        scan = await db.scan(EVERYTHING)
        while await scan.next() is not None:
            pass
        with pytest.raises(Error.Invalid, match="key cannot be empty"):
            await db.put(b"", b"v")

    async def main() -> None:
        async with opened(memory(), flush_interval="001ms") as db:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(3):
                    tasks.create_task(asyncio.to_thread(lambda: asyncio.run(elsewhere(db))))
            scan = await db.scan(EVERYTHING)
            rows = await scan.next_batch(100)
            assert len(rows) == 60
            assert sorted(row.seq for row in rows) == [*range(1, 61)]

    asyncio.run(main())


def test_a_handle_whose_loop_does_not_run_says_so() -> None:
    async def build() -> slatedb.Db:
        return await slatedb.DbBuilder(PATH, memory()).build()

    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(build())
    with pytest.raises(Error.Invalid, match="event loop"):
        asyncio.run(db.put(b"k", b"v"))
    loop.run_until_complete(db.shutdown())
    loop.close()
