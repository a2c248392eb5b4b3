"""The conformance suite on every adapter that can run here."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shale.env import Env
from shale.store.cloud_store.adapter import CloudStore
from shale.store.connect import connect
from shale.store.local_store.adapter import LocalStore
from shale.store.memory import MemoryStore
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.store.preflight import check_store
from shale.store.retry import RetryingStore
from tests.integration.store.conformance import StoreConformance
from tests.integration.store.servers import SECRET, azurite, emptied, empty_s3_store, s3_server
from tests.integration.store.versitygw import needs_versitygw, versitygw

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("shale-test") as url:
        yield url


@pytest.fixture(scope="module")
def durable_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with versitygw("shale-test", tmp_path_factory.mktemp("objects")) as url:
        yield url


@pytest.fixture(scope="module")
def azure_config() -> Iterator[dict[str, str]]:
    with azurite("shale-test") as config:
        yield config


class TestMemory(StoreConformance):
    @pytest.fixture
    async def store(self) -> ObjectStore:
        return MemoryStore()


class TestLocal(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "store")


class TestS3(StoreConformance):
    @pytest.fixture
    async def store(self, endpoint: str) -> AsyncIterator[ObjectStore]:
        async with empty_s3_store(endpoint, "shale-test") as store:
            yield store


class TestS3Retrying(TestS3):
    """All layers, as the engine uses them."""

    @pytest.fixture
    async def store(self, endpoint: str) -> AsyncIterator[ObjectStore]:
        async with empty_s3_store(endpoint, "shale-test") as adapter:
            yield RetryingStore(adapter, Env.system())

    @pytest.mark.slow
    async def test_attributes_survive_where_there_are_any(self, store: ObjectStore) -> None:
        pytest.skip("a conditional put adds its own attribute here")

    @pytest.mark.slow
    async def test_a_listing_longer_than_a_page(self, store: ObjectStore) -> None:
        pytest.skip("the adapter below has shown it, and a thousand requests take their time")


@needs_versitygw
class TestVersitygw(StoreConformance):
    @pytest.fixture
    async def store(self, durable_endpoint: str) -> AsyncIterator[ObjectStore]:
        async with empty_s3_store(durable_endpoint, "shale-test") as store:
            yield store


class TestAzure(StoreConformance):
    @pytest.fixture
    async def store(self, azure_config: dict[str, str]) -> AsyncIterator[ObjectStore]:
        async with emptied(CloudStore("az://shale-test", StoreOptions(config=azure_config))) as store:
            yield store


async def require_no_complaint(url: str, config: dict[str, str] | None = None) -> None:
    """Run all checks of ``shale doctor`` on a store; they leave nothing."""
    store = connect(url, Env.system(), None, StoreOptions(config=config or {}))
    before = await store.list("")
    results = await check_store(store, Env.system(), full=True, prefix="some/db")
    assert [result for result in results if result.ok is False] == []
    assert await store.list("") == before
    await store.aclose()


@pytest.mark.slow
async def test_doctor_is_content_with_every_store_here(endpoint: str, tmp_path: Path) -> None:
    await require_no_complaint(f"file://{tmp_path}")
    await require_no_complaint("s3://shale-test", s3_config(endpoint))


@needs_versitygw
async def test_doctor_is_content_with_versitygw(durable_endpoint: str) -> None:
    await require_no_complaint("s3://shale-test", s3_config(durable_endpoint))


def s3_config(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "access_key_id": SECRET, "secret_access_key": SECRET, "region": "us-east-1"}
