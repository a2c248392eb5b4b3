"""A page of a scan is one document, and its token continues it."""

from typing import Any

import msgpack
import pytest

from shale.api.scan.page import PAGE_BYTES_MAX
from tests.unit.api.harness import Port, b64, open_port

pytestmark = pytest.mark.anyio

KEYS = [b"k%03d" % number for number in range(40)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def page(port: Port, query: str = "", **fields: Any) -> dict[str, Any]:
    answer = await port.post(f"/v1/scan-page{query}", fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def all_keys(port: Port, **fields: Any) -> tuple[list[str], int]:
    """Return the keys of all pages, and the number of pages."""
    found, pages, resume = list[str](), 0, None
    while True:
        one = await page(port, **fields, **({} if resume is None else {"resume": resume}))
        pages += 1
        found += [row["key"] for row in one["rows"]]
        resume = one["resume"]
        if resume is None:
            return found, pages


@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_continue_each_other(*, reverse: bool) -> None:
    async with open_port() as port:
        for key in KEYS:
            await port.db.put(key, b"v")
        found, pages = await all_keys(port, limit=15, reverse=reverse)
        assert found == [b64(key) for key in (reversed(KEYS) if reverse else KEYS)]
        assert pages == 3


async def test_a_row_has_what_a_line_of_a_stream_has() -> None:
    async with open_port() as port:
        handle = await port.db.put(b"a", b"1", expire_at=99_999_999_999_999)
        row = {"seq": handle.seq, "create_ts": handle.create_ts, "expire_ts": 99_999_999_999_999}
        assert await page(port) == {"rows": [{"key": b64(b"a"), "value": b64(b"1"), **row}], "resume": None}
        headers = {"Content-Type": "application/msgpack"}
        packed = await port.client.post("/v1/scan-page", content=msgpack.packb({}), headers=headers)
        assert msgpack.unpackb(packed.content) == {"rows": [{"key": b"a", "value": b"1", **row}], "resume": None}


async def test_the_largest_limit_is_that_of_the_port() -> None:
    async with open_port(limits={"max_batch_rows": 3}) as port:
        for key in KEYS[:7]:
            await port.db.put(key, b"v")
        assert len((await page(port, limit=100))["rows"]) == 3
        assert len((await page(port))["rows"]) == 3
        assert await page(port, limit=0) == {"rows": [], "resume": None}


async def test_a_page_of_large_values_ends_early_and_continues() -> None:
    async with open_port() as port:
        for key in KEYS[:5]:
            await port.db.put(key, bytes(PAGE_BYTES_MAX // 2))
        found, pages = await all_keys(port)
        assert found == [b64(key) for key in KEYS[:5]]
        assert pages == 3


async def test_a_page_of_a_snapshot_continues_in_the_snapshot() -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        await port.db.put(b"b", b"1")
        snapshot = (await port.post("/v1/snapshots", {})).json()["id"]
        first = await page(port, f"?snapshot={snapshot}", limit=1)
        await port.db.delete(b"b")
        assert [row["key"] for row in (await page(port, resume=first["resume"]))["rows"]] == [b64(b"b")]
        await port.client.delete(f"/v1/snapshots/{snapshot}")
        assert (await port.post("/v1/scan-page", {"resume": first["resume"]})).status_code == 410


async def test_a_changed_state_is_seen_or_refused() -> None:
    async with open_port() as port:
        for key in KEYS[:3]:
            await port.db.put(key, b"v")
        token = (await page(port, limit=1))["resume"]
        await port.db.put(b"z", b"v")
        answer = await port.post("/v1/scan-page", {"resume": token})
        assert answer.headers["x-shale-same-state"] == "false"
        assert len(answer.json()["rows"]) == 3
        assert (await port.post("/v1/scan-page", {"resume": token, "same_state": True})).status_code == 410


async def test_a_bad_request_is_refused_as_by_a_scan() -> None:
    async with open_port() as port:
        for body in ({"limits": 1}, {"resume": "x"}, {"limit": -1}):
            assert (await port.post("/v1/scan-page", body)).status_code == 400
