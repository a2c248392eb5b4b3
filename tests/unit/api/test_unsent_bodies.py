"""Bodies count in the memory of responses until they are sent."""

from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from shale.service.memory.process_memory import ProcessMemory
from tests.unit.api.harness import Port, b64, open_port

pytestmark = pytest.mark.anyio

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def call(
    port: Port, method: str, path: str, body: bytes = b"", *, unread: anyio.Event | None = None, sends: Any = None
) -> int:
    """Send a request past the client; ``sends`` gets each body, and nothing more is sent until ``unread``."""
    status: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
        elif sends is not None:
            await sends(message["body"])
        if unread is not None and message.get("body"):
            await unread.wait()

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"accept", b"application/json")],
    }
    await port.app(scope, receive, send)
    return status[0]


@pytest.mark.parametrize(("size", "held"), [(60 * KIB, 0), (100 * KIB, 100 * KIB), (900 * KIB, 900 * KIB)])
async def test_a_value_counts_while_it_is_sent(size: int, held: int) -> None:
    memory, seen = ProcessMemory(response_bytes=64 * MIB), list[int]()

    async def sends(_body: bytes) -> None:
        seen.append(memory.responses.used_bytes)

    async with open_port(memory=memory) as port:
        await port.db.put(b"k", bytes(size))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(port, "GET", "/v1/kv/k", sends=sends))
        await anyio.lowlevel.checkpoint()
        assert (set(seen), memory.responses.used_bytes) == ({held}, 0)


@pytest.mark.parametrize(("path", "fields"), [("/v1/get-many", {"keys": [b64(b"k")] * 2}), ("/v1/scan-page", {})])
async def test_a_document_counts_while_it_is_sent(path: str, fields: dict[str, Any]) -> None:
    memory, seen = ProcessMemory(response_bytes=64 * MIB), list[tuple[int, int]]()

    async def sends(body: bytes) -> None:
        seen.append((memory.responses.used_bytes, len(body)))

    async with open_port(memory=memory) as port:
        await port.db.put(b"k", bytes(100 * KIB))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(port, "POST", path, orjson.dumps(fields), sends=sends))
        assert {used for used, _ in seen} == {sum(length for _, length in seen)}
        assert seen[0][0] > 100 * KIB
        await anyio.lowlevel.checkpoint()
        assert memory.responses.used_bytes == 0


async def test_a_value_waits_for_those_that_are_not_read() -> None:
    """And is refused in the end, as a large one is."""
    memory, unread, statuses = ProcessMemory(response_bytes=2 * MIB), anyio.Event(), list[int]()

    async with open_port(memory=memory, limits={"request_timeout": 0.05}) as port:
        for number in range(3):
            await port.db.put(b"k%d" % number, bytes(500 * KIB))

        async def get(number: int) -> None:
            statuses.append(await call(port, "GET", f"/v1/kv/k{number}", unread=unread))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(get, 0)
            tasks.start_soon(get, 1)
            await anyio.wait_all_tasks_blocked()
            assert await call(port, "GET", "/v1/kv/k2") == 503
            unread.set()
        assert statuses == [200, 200]
        assert await call(port, "GET", "/v1/kv/k2") == 200
