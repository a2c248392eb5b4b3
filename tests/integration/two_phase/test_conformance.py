"""The conformance suite on the two-phase mode: plain stores, and records in SQLite and PostgreSQL.

All keys have records here.  In a database only numbered files and markers have, and nothing else is ever created.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shale.env import Env
from shale.errors import ShaleError
from shale.store.local_store.adapter import LocalStore
from shale.store.port import CREATE, ObjectStore, Update
from shale.store.retry import RetryingStore
from shale.store.transactional.connect import open_transactional_store
from shale.store.two_phase import store as two_phase_store
from shale.store.two_phase.store import TwoPhaseStore
from tests.integration.store.conformance import StoreConformance
from tests.integration.store.database_servers import postgresql
from tests.unit.store.two_phase.plain_store import PlainStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


async def two_phase(objects: ObjectStore, url: str, patch: pytest.MonkeyPatch) -> AsyncIterator[ObjectStore]:
    """Open a two-phase store without records; all its keys have records."""
    patch.setattr(two_phase_store, "is_emulated", lambda _: True)
    records = open_transactional_store(url)
    await records.create_schema()
    await records.remove_all("")
    store = RetryingStore(TwoPhaseStore(objects, records, Env.system()), Env.system())
    yield store
    assert await records.unfinished("") == []
    await store.aclose()


class TwoPhaseConformance(StoreConformance):
    """The suite without what the mode does not have."""

    async def test_update_needs_the_version(self, store: ObjectStore) -> None:
        etag = await store.put("db/a", b"1")
        assert etag
        with pytest.raises(ShaleError, match="conditional put"):
            await store.put("db/a", b"2", mode=Update(etag))

    @pytest.mark.parametrize("kind", ["create"])
    async def test_a_race_has_one_winner(self, store: ObjectStore, kind: str) -> None:
        await super().test_a_race_has_one_winner(store, kind)

    async def test_attributes_survive_where_there_are_any(self, store: ObjectStore) -> None:
        pytest.skip("records keep the id of a put, and no other attribute")


class TestSqlite(TwoPhaseConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ObjectStore]:
        objects = LocalStore(tmp_path / "store")
        async for store in two_phase(objects, f"sqlite://{tmp_path}/records.db", monkeypatch):
            yield store


class TestPostgresql(TwoPhaseConformance):
    @pytest.fixture
    async def store(self, postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ObjectStore]:
        async for store in two_phase(PlainStore(), postgresql_url, monkeypatch):
            yield store


async def test_only_keys_with_records_can_be_created() -> None:
    """A record of any other object would stay after its deletion, and forbid the key for ever."""
    records = open_transactional_store("memory:///only-numbered")
    store = TwoPhaseStore(PlainStore(), records, Env.system())
    with pytest.raises(ShaleError, match="create"):
        await store.put("db/compacted/other", b"1", mode=CREATE)
    assert await records.records("") == []
