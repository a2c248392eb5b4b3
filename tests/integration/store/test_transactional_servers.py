"""The contract of transactional stores on real servers: PostgreSQL, MariaDB, and DynamoDB as moto serves it."""

import re
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from shale.errors import AccessDenied, InvalidRequestError, UnavailableError
from shale.store.transactional import port, sql
from shale.store.transactional.connect import open_transactional_store
from shale.store.transactional.port import TransactionalStore
from shale.store.transactional.sql import SqlTransactionalStore, Transaction
from tests.integration.store.database_servers import mariadb, postgresql
from tests.integration.store.servers import nobody_listening, s3_server
from tests.unit.store.transactional.contract import TransactionalStoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def mariadb_url() -> Iterator[str]:
    with mariadb() as url:
        yield url


@pytest.fixture(scope="module")
def dynamodb_url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server("unused") as endpoint:
        patch.setenv("AWS_ACCESS_KEY_ID", "t")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "t")
        yield f"dynamodb://us-east-1/shale-records?endpoint={endpoint}"


async def emptied(url: str) -> AsyncIterator[TransactionalStore]:
    """Open a store without records; close it at the end."""
    store = open_transactional_store(url)
    await store.create_schema()
    await store.remove_all("")
    yield store
    await store.aclose()


class TestPostgresql(TransactionalStoreContract):
    @pytest.fixture
    async def store(self, postgresql_url: str) -> AsyncIterator[TransactionalStore]:
        async for store in emptied(postgresql_url):
            yield store


class TestMariadb(TransactionalStoreContract):
    @pytest.fixture
    async def store(self, mariadb_url: str) -> AsyncIterator[TransactionalStore]:
        async for store in emptied(mariadb_url):
            yield store


class TestDynamodb(TransactionalStoreContract):
    @pytest.fixture
    async def store(self, dynamodb_url: str) -> AsyncIterator[TransactionalStore]:
        async for store in emptied(dynamodb_url):
            yield store


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["postgresql://user:secret", "mysql://user:secret"])
async def test_a_server_that_is_away_is_unavailable_and_its_password_is_not_told(scheme: str) -> None:
    with nobody_listening() as port:
        store = open_transactional_store(f"{scheme}@127.0.0.1:{port}/shale")
        with pytest.raises(UnavailableError) as caught:
            await store.get("db/manifest/1")
        assert "secret" not in str(caught.value)
        assert re.search("refused|Can't connect", str(caught.value))
        await store.aclose()


async def test_a_database_without_tables_names_the_command(postgresql_url: str, mariadb_url: str) -> None:
    for url in (f"{postgresql_url}?options=-csearch_path%3Dpg_temp", mariadb_url.replace("/shale", "/mysql")):
        store = open_transactional_store(url)
        assert await store.schema_version() is None
        with pytest.raises(InvalidRequestError, match="shale cas init"):
            await store.get("db/manifest/1")
        await store.aclose()


@pytest.mark.parametrize("server", ["postgresql_url", "mariadb_url", "dynamodb_url"])
async def test_tables_of_a_later_release_are_left_alone(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(server)
    async for later in emptied(url):
        await later.raise_low_water_mark("db/wal", 3)
    monkeypatch.setattr(port, "SCHEMA_VERSION", 0)
    store = open_transactional_store(url)
    for call in (store.create_schema(), store.get("db/manifest/1"), store.remove_all("")):
        with pytest.raises(InvalidRequestError, match="version 1, this release knows 0"):
            await call
    await store.aclose()
    monkeypatch.undo()
    store = open_transactional_store(url)
    assert await store.low_water_mark("db/wal") == 3
    await store.aclose()


def _sleep(function: str) -> Transaction[None]:
    yield f"SELECT {function}(60)", ()


@pytest.mark.slow
@pytest.mark.parametrize(("server", "function"), [("postgresql_url", "pg_sleep"), ("mariadb_url", "sleep")])
async def test_a_server_that_does_not_answer_is_away(
    server: str, function: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async for store in emptied(request.getfixturevalue(server)):
        assert isinstance(store, SqlTransactionalStore)
        with anyio.move_on_after(0.1) as scope:
            await store.run(lambda: _sleep(function))
        assert scope.cancelled_caught
        monkeypatch.setattr(sql, "ANSWER_S", 0.1)
        with pytest.raises(UnavailableError, match=r"no answer within 0\.1 s"):
            await store.run(lambda: _sleep(function))
        monkeypatch.undo()
        assert await store.raise_low_water_mark("db/wal", 3) == 3


@pytest.mark.parametrize("url", ["mysql://h:x/db", "mysql://h/db?ssl=true", "postgresql://h/db?tls=on"])
def test_a_url_that_is_not_understood_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"//h"):
        open_transactional_store(url)


def _create_role() -> Transaction[None]:
    yield "CREATE ROLE reader LOGIN", ()


async def test_a_user_without_rights_is_denied(postgresql_url: str, mariadb_url: str) -> None:
    async for store in emptied(postgresql_url):
        assert isinstance(store, SqlTransactionalStore)
        await store.run(_create_role)
    for url in (postgresql_url.replace("postgres@", "reader@"), mariadb_url.replace("root@", "root:secret@")):
        store = open_transactional_store(url)
        with pytest.raises(AccessDenied) as caught:
            await store.get("db/manifest/1")
        assert "secret" not in str(caught.value)
        await store.aclose()


async def test_a_key_that_is_too_long_is_not_tried_again(mariadb_url: str) -> None:
    async for store in emptied(mariadb_url):
        with pytest.raises(InvalidRequestError, match="too long"):
            await store.raise_low_water_mark("x" * 701, 1)
