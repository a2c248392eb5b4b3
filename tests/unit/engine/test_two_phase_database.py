"""A database on a store without conditional writes."""

from pathlib import Path

import pytest

from shale import Db
from shale.env import Env
from shale.errors import FencedError, InvalidDbState, InvalidRequestError
from shale.store.connect import connect
from shale.store.options import StoreOptions
from shale.store.retry import RetryingStore
from shale.store.two_phase.store import two_phase_of
from shale.types import CasMode
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


def test_a_mode_without_records_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"store\.transactional_url"):
        connect("memory:///none", Env.system(), options=StoreOptions(cas=CasMode.TWO_PHASE))
