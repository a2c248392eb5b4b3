"""What the data port answers while the process holds as much memory as it may."""

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shale.core.memory_account import MemoryAccount
from shale.engine.db import Db
from shale.service.memory.process_memory import ProcessMemory
from tests.unit.api.harness import open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_writes_are_refused_until_there_is_room_and_reads_go_on() -> None:
    """A refused write is 429 with ``Retry-After``, and the process counts it."""
    account = MemoryAccount(1 << 40)
    async with open_port(memory=ProcessMemory(account)) as port:
        assert (await port.client.put("/v1/kv/a", content=b"1")).status_code == 204
        account.is_full = True
        refused = await port.client.put("/v1/kv/a", content=b"2")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "memory.limit" in refused.json()["detail"]
        assert (await port.client.post("/v1/batch", json={"ops": []})).status_code == 429
        assert (await port.client.get("/v1/kv/a")).content == b"1"
        assert account.refusals == 2
        account.is_full = False
        assert (await port.client.put("/v1/kv/a", content=b"2")).status_code == 204


async def test_a_write_that_waits_holds_its_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer that the body was read into is gone by then."""
    chunk, held = bytes(1 << 20), list[int]()
    async with open_port() as port:
        put = Db.put

        async def measured(db: Db, *args: Any, **options: Any) -> Any:
            held.append(tracemalloc.get_traced_memory()[0])
            return await put(db, *args, **options)

        async def body() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield chunk

        monkeypatch.setattr(Db, "put", measured)
        tracemalloc.start()
        try:
            assert (await port.client.put("/v1/kv/a", content=body())).status_code == 204
        finally:
            tracemalloc.stop()
        assert 8 << 20 <= held[0] < 12 << 20
