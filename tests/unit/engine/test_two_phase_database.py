"""A database on a store without conditional writes."""

from contextlib import suppress
from pathlib import Path

import pytest

from shale import Admin, Db, DbReader
from shale.engine.wal.prefetch import WalPrefetch
from shale.env import Env
from shale.errors import FencedError, InvalidDbState, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.connect import connect
from shale.store.options import StoreOptions
from shale.store.retry import RetryingStore
from shale.store.two_phase.store import two_phase_of
from shale.types import CasMode, ExclusiveModes
from tests.unit.store.two_phase.plain_store import Place, PlainStore

pytestmark = pytest.mark.anyio


def store_of(place: Place) -> RetryingStore:
    return RetryingStore(place.process(), Env.system())


async def test_rows_survive_and_no_condition_is_sent() -> None:
    place = Place()
    async with Db.open(store=store_of(place), path="db") as db:
        for number in range(100):
            await db.put(b"%03d" % number, b"value")
        await db.flush()
    async with Db.open(store=store_of(place), path="db") as db:
        assert await db.get(b"042") == b"value"
        assert len([row async for row in db.scan()]) == 100
    assert isinstance(place.objects, PlainStore)
    assert await place.records.unfinished("") == []


async def test_a_second_writer_fences_the_first() -> None:
    place = Place()
    first = await Db.open(store=store_of(place), path="db")
    await first.put(b"a", b"1")
    await first.flush()
    async with Db.open(store=store_of(place), path="db") as second:
        assert await second.get(b"a") == b"1"
        await second.put(b"b", b"2")
    with pytest.raises(FencedError):
        await first.close()


async def test_files_of_the_wal_that_were_read_ahead_are_recognized_in_a_listing() -> None:
    place = Place()
    async with Db.open(store=store_of(place), path="db") as db:
        for number in range(5):
            await (await db.put(b"%03d" % number, b"value")).durable()
        prefetch = WalPrefetch(WalStore(store_of(place), "db"), Env.system(), bytes_max=1 << 20)
        await prefetch.advance(db.status.manifest)
        count = prefetch.file_count
        assert len(await prefetch.take()) == count == 6


async def test_a_process_with_the_other_mode_is_refused() -> None:
    place = Place()
    async with Db.open(store=store_of(place), path="db") as db:
        await db.put(b"a", b"1")
    with pytest.raises(InvalidDbState, match=r"store\.cas=two-phase.*transactional_url"):
        async with Db.open(store=RetryingStore(place.objects, Env.system()), path="db"):
            pass


async def test_a_database_with_native_creates_is_not_opened_in_two_phases(tmp_path: Path) -> None:
    async with Db.open(f"file://{tmp_path}/db") as db:
        await db.put(b"a", b"1")
    options = StoreOptions(cas=CasMode.TWO_PHASE, transactional_url=f"sqlite://{tmp_path}/records.db")
    with pytest.raises(InvalidRequestError, match="shale cas init"):
        async with Db.open(f"file://{tmp_path}/db", store_options=options):
            pass
    store = connect(f"file://{tmp_path}", Env.system(), options=options)
    two_phase = two_phase_of(store)
    assert two_phase is not None
    await two_phase.records.create_schema()
    await store.aclose()
    with pytest.raises(InvalidDbState, match="shale cas migrate --to two-phase"):
        async with Db.open(f"file://{tmp_path}/db", store_options=options):
            pass


async def test_parallel_wal_writes_and_two_phase_creates_are_in_one_envelope() -> None:
    place = Place()
    abandoned = await Db.open("db", store=store_of(place), max_parallel_writes=3, flush_interval=0)
    for number in range(20):
        await (await abandoned.put(b"%02d" % number, b"value")).durable()
    async with Db.open("db", store=store_of(place)) as db:  # as after a kill: three fences, then a replay
        assert len([row async for row in db.scan()]) == 20
        await db.put(b"new", b"value")
    with pytest.raises(FencedError):
        await (await abandoned.put(b"late", b"value")).durable()
    with suppress(FencedError):
        await abandoned.close()
    manifest = (await ManifestStore(store_of(place), "db", Env.system()).read_latest()).value
    assert manifest.exclusive == ExclusiveModes(max_parallel_writes=3, cas=CasMode.TWO_PHASE)
    assert await place.records.unfinished("") == []


async def test_a_clone_of_such_a_database_has_both_modes() -> None:
    place = Place()
    async with Db.open("db", store=store_of(place), max_parallel_writes=3) as db:
        await db.put(b"a", b"1")
    async with Admin("copy", store=store_of(place)) as admin:
        await admin.clones.create("db")
    abandoned = await Db.open("copy", store=store_of(place), flush_interval=0)
    await (await abandoned.put(b"b", b"2")).durable()
    async with Db.open("copy", store=store_of(place)) as clone:
        assert [row.key async for row in clone.scan()] == [b"a", b"b"]
    with suppress(FencedError):
        await abandoned.close()
    manifest = (await ManifestStore(store_of(place), "copy", Env.system()).read_latest()).value
    assert manifest.exclusive == ExclusiveModes(max_parallel_writes=3, cas=CasMode.TWO_PHASE)
    wal = {record.destination for record in await place.records.records("copy/wal/")}
    assert len(wal) >= 7, "three fences of each writer, and a row"
    async with DbReader.open("db", store=store_of(place)) as source:
        assert [row.key async for row in source.scan()] == [b"a"]


def test_a_mode_without_records_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"store\.transactional_url"):
        connect("memory:///none", Env.system(), options=StoreOptions(cas=CasMode.TWO_PHASE))
