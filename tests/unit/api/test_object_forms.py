"""Operations and comparisons as objects, which generated clients send, mean the same as arrays."""

from typing import Any

import pytest

from tests.unit.api.harness import b64, open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def op(kind: str, key: bytes, value: bytes | None = None, **more: Any) -> dict[str, Any]:
    """Return an operation; ``more`` may have fields that are wrong."""
    return {"op": kind, "key": b64(key), **({} if value is None else {"value": b64(value)}), **more}


async def test_objects_and_arrays_in_one_batch() -> None:
    async with open_port() as port:
        await port.db.put(b"gone", b"x")
        ops = [
            op("put", b"a", b"1"),
            op("put", b"b", b"2", ttl_ms=3_600_000),
            op("put", b"c", b"3", expire_at=99_999_999_999_999, ttl_ms=None),
            op("put", b"d", b"4", ttl_ms="never", expire_at=None),
            op("delete", b"gone"),
            ["put", b64(b"e"), b64(b"5")],
        ]
        assert (await port.post("/v1/batch", {"ops": ops})).json()["rows"] == 6
        rows = [await port.db.get_row(key) for key in (b"a", b"b", b"c", b"d", b"e")]
        assert [row and row.value for row in rows] == [b"1", b"2", b"3", b"4", b"5"]
        times = [None if row is None else row.expire_ts for row in rows]
        create_ts = rows[0].create_ts if rows[0] is not None else None
        assert create_ts is not None
        assert times == [None, create_ts + 3_600_000, 99_999_999_999_999, None, None]
        assert await port.db.get(b"gone") is None


async def test_a_merge_as_an_object() -> None:
    async with open_port(merge_operator="concatenate") as port:
        await port.db.put(b"a", b"1")
        assert (await port.post("/v1/batch", {"ops": [op("merge", b"a", b"2")]})).status_code == 200
        assert await port.db.get(b"a") == b"12"


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        (op("put", b"a"), "ops[1] value: not base64 text"),
        (op("put", b"a", b"1", ttl=5), "ops[1] ttl: no such field"),
        (op("put", b"a", b"1", ttl_ms=5, expire_at=9), "ops[1]: ttl_ms and expire_at"),
        (op("put", b"a", b"1", expire_at="soon"), "ops[1] ttl_ms expire_at: must be a number"),
        (op("delete", b"a", b"1"), "ops[1] value: no such field"),
        ({"op": "delete"}, "ops[1] key: not base64 text"),
        (op("swap", b"a", b"1"), "ops[1]: must be"),
        ({"op": ["put"], "key": "", "value": ""}, "ops[1]: must be"),
        ({}, "ops[1]: must be"),
    ],
    ids=str,
)
async def test_a_wrong_object_is_named_and_nothing_is_written(wrong: dict[str, Any], detail: str) -> None:
    async with open_port() as port:
        answer = await port.post("/v1/batch", {"ops": [op("put", b"a", b"1"), wrong]})
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith(detail)
        assert await port.db.get(b"a") is None


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ({"check": "absent", "key": b64(b"no")}, 200),
        ({"check": "absent", "key": b64(b"a")}, 412),
        ({"check": "present", "key": b64(b"a")}, 200),
        ({"check": "value", "key": b64(b"a"), "value": b64(b"1")}, 200),
        ({"check": "value", "key": b64(b"a"), "value": b64(b"2")}, 412),
        ({"check": "seq", "key": b64(b"a"), "seq": 1}, 200),
        ({"check": "seq", "key": b64(b"a"), "seq": 2}, 412),
        ({"check": "seq", "key": b64(b"a")}, 400),
        ({"check": "value", "key": b64(b"a"), "seq": 1}, 400),
        ({"check": "same", "key": b64(b"a")}, 400),
        ({"check": ["absent"], "key": b64(b"a")}, 400),
        ({}, 400),
    ],
    ids=str,
)
async def test_a_comparison_as_an_object(check: dict[str, Any], status: int) -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        answer = await port.post("/v1/txn", {"compare": [check], "ops": [op("put", b"b", b"1")]})
        assert answer.status_code == status, answer.text
        assert (await port.db.get(b"b") is not None) == (status == 200)
