"""The contract of transactional stores on real servers: PostgreSQL, MariaDB, and DynamoDB as moto serves it."""

import re
from collections.abc import AsyncIterator, Iterator

import pytest

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.transactional.connect import open_transactional_store
from shale.store.transactional.port import TransactionalStore
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
