"""The contract on the drivers that need no server."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.transactional import port
from shale.store.transactional.connect import open_transactional_store
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


async def test_tables_of_a_later_release_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = SqliteTransactionalStore(tmp_path / "records.db")
    await later.create_schema()
    await later.insert(record(7), slot(7))
    monkeypatch.setattr(port, "SCHEMA_VERSION", 0)
    store = SqliteTransactionalStore(tmp_path / "records.db")
    for request in (store.create_schema(), store.get(record(7).destination), store.remove_all("")):
        with pytest.raises(InvalidRequestError, match="version 1, this release knows 0"):
            await request
    assert await store.schema_version() == 1
    assert await later.get(record(7).destination) == record(7)
    await store.aclose()
    await later.aclose()


async def test_records_are_not_written_to_a_sqlite_file_that_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    store = SqliteTransactionalStore(path)
    await store.create_schema()
    path.rename(tmp_path / "moved.db")
    with pytest.raises(UnavailableError, match=r"records\.db"):
        await store.insert(record(7), slot(7))
    assert not path.exists()
    (tmp_path / "moved.db").rename(path)
    assert await store.insert(record(8), slot(8)) == record(8)
    other = SqliteTransactionalStore(path)
    assert await other.records("") == [record(8)]
    await other.aclose()
    await store.aclose()


async def test_requests_that_wait_for_the_lock_occupy_one_thread(tmp_path: Path) -> None:
    store = SqliteTransactionalStore(tmp_path / "records.db")
    await store.create_schema()
    other = sqlite3.connect(tmp_path / "records.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    threads = anyio.to_thread.current_default_thread_limiter()
    async with anyio.create_task_group() as tasks:
        for _ in range(int(threads.total_tokens) + 1):
            tasks.start_soon(store.get, "db/manifest/1")
        await anyio.wait_all_tasks_blocked()
        assert await anyio.to_thread.run_sync(lambda: "at once") == "at once"
        other.execute("COMMIT")
    other.close()
    await store.aclose()


async def test_a_file_that_is_no_database_is_an_error_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "records.db").write_bytes(b"a file of someone else, longer than the header of a database" * 20)
    store = SqliteTransactionalStore(tmp_path / "records.db")
    with pytest.raises(InvalidRequestError, match="not a database"):
        await store.create_schema()
    await store.aclose()


@pytest.mark.parametrize("url", ["sqlite://data/cas.db", "sqlite:///data/cas.db?mode=ro", "sqlite:cas.db"])
def test_a_url_that_would_name_another_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="sqlite:///absolute/path"):
        open_transactional_store(url)


@pytest.mark.parametrize(
    "password", ["S3CR@ET", "S3CR/RET", "S3C@R/ET", "S3C/R@ET", "S3CR%zzET", "S3CR ET", 'S3CR" ET', 'S3%zz"CR ET']
)
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"%40|is not understood") as refused:
        open_transactional_store(f"postgresql://u:{password}@127.0.0.1:1/db")
    assert not any(part in str(refused.value) for part in ("S3", "CR", "ET"))
    assert refused.value.__cause__ is None


def test_a_password_that_is_encoded_is_taken() -> None:
    store = open_transactional_store("postgresql://u:S3CR%40%2FET@127.0.0.1:1/db?application_name=a")
    assert store.url == "postgresql://127.0.0.1:1/db"
