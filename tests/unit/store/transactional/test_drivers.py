"""The contract on the drivers that need no server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import TransactionalStore
from shale.store.transactional.sqlite import SqliteTransactionalStore
from tests.unit.store.transactional.contract import TransactionalStoreContract, record, slot

pytestmark = pytest.mark.anyio


class TestMemory(TransactionalStoreContract):
    @pytest.fixture
    async def store(self) -> TransactionalStore:
        return MemoryTransactionalStore()


class TestSqlite(TransactionalStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[TransactionalStore]:
        store = SqliteTransactionalStore(tmp_path / "records.db")
        await store.create_schema()
        yield store
        await store.aclose()


async def test_two_processes_share_a_sqlite_file(tmp_path: Path) -> None:
    first, second = (SqliteTransactionalStore(tmp_path / "records.db") for _ in range(2))
    await first.create_schema()
    assert await first.insert(record(7, "a"), slot(7)) == record(7, "a")
    assert await second.insert(record(7, "b"), slot(7)) == record(7, "a")
    await first.aclose()
    await second.aclose()


async def test_a_sqlite_file_without_tables_names_the_command(tmp_path: Path) -> None:
    store = SqliteTransactionalStore(tmp_path / "records.db")
    assert await store.schema_version() is None
    assert not (tmp_path / "records.db").exists()
    with pytest.raises(InvalidRequestError, match="shale cas init"):
        await store.get("db/manifest/1")
    await store.aclose()


async def test_a_sqlite_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    store = SqliteTransactionalStore(tmp_path / "none" / "records.db")
    with pytest.raises(UnavailableError, match=r"records\.db"):
        await store.create_schema()
