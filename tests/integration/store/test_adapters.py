"""The conformance suite on every adapter that can run here."""

from pathlib import Path

import pytest

from shale.store.local import LocalStore
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from tests.integration.store.conformance import StoreConformance

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestMemory(StoreConformance):
    @pytest.fixture
    async def store(self) -> ObjectStore:
        return MemoryStore()


class TestLocal(StoreConformance):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "store")
