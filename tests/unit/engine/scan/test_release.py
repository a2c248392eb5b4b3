"""A scan gives up what it has read ahead, and goes on after its last row."""

from typing import Any

import pytest

import shale
from shale.env import Env
from shale.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

ROWS = 3000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 2000}])
@pytest.mark.parametrize("how", ["rows", "batches", "columns"])
@pytest.mark.parametrize("flushed", [True, False])
async def test_a_released_scan_shows_every_row_once(options: dict[str, Any], how: str, flushed: bool) -> None:
    """In both directions, up to its limit, from memory and from SSTs, and the state of its begin."""
    async with shale.Db.open("db", store=MemoryStore(), env=Env.system(), compactor=False, gc=False) as db:
        keys = [b"%06d" % number for number in range(ROWS)]
        for key in keys:
            await db.put(key, key * 20)
        if flushed:
            await db.flush("memtable")
        scan, found = db.scan(**options), list[bytes]()
        scan.release()
        while True:
            if how == "rows":
                rows = [row.key async for row in _first(scan, 700)]
            elif how == "batches":
                rows = [row.key for row in await scan.next_batch(700, bytes_max=40_000)]
            else:
                columns = await scan.columns()
                rows = [] if columns is None else [columns.key(place) for place in range(len(columns))]
            if not rows:
                break
            found += rows
            scan.release()
            await db.put(b"a%d" % len(found), b"newer")
        wanted = keys[::-1] if "reverse" in options else keys
        assert found == wanted[: options.get("limit")]


async def _first(scan: Any, count: int) -> Any:
    for _ in range(count):
        try:
            yield await anext(scan)
        except StopAsyncIteration:
            return
