"""The OpenAPI document: what client generators need, and what it says of a writer and of a reader."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette

from shale.api.admin_openapi import FLUSH, GC, checkpoint_paths, openapi_route
from shale.api.openapi import document
from shale.service.http.server_url import server_url
from tests.unit.api.harness import open_port

WRITER = frozenset({"kv", "batch", "txn", "get-many", "scan", "scan-page", "snapshots", "snapshot", "writer"})
READER = frozenset({"kv", "get-many", "scan", "scan-page"})
METHODS = ("get", "head", "put", "patch", "post", "delete")
SCHEMA_FIELDS = ("items", "schema", "additionalItems", "not")


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Return all objects of a document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def calls(described: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for path in described["paths"].values() for name, call in path.items() if name in METHODS]


@pytest.fixture(params=[WRITER, READER], ids=["writer", "reader"])
def described(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(document(request.param, "http://host:1"))
    return found


def test_no_schema_is_a_boolean(described: dict[str, Any]) -> None:
    """Generators read ``items: false`` as a malformed schema."""
    assert not [part for part in parts(described) for name in SCHEMA_FIELDS if isinstance(part.get(name), bool)]


def test_every_call_has_a_tag_and_an_id_of_its_own(described: dict[str, Any]) -> None:
    ids = [call["operationId"] for call in calls(described)]
    assert len(set(ids)) == len(ids)
    tags = {tag["name"] for tag in described["tags"]}
    assert all(set(call["tags"]) <= tags for call in calls(described))


def test_every_named_schema_is_used_and_every_used_one_is_there(described: dict[str, Any]) -> None:
    used = {part["$ref"].rpartition("/")[2] for part in parts(described) if "$ref" in part}
    assert used == set(described["components"]["schemas"])


def test_a_reader_describes_no_writes() -> None:
    found = orjson.loads(document(READER, "/"))
    assert {call["operationId"] for call in calls(found)} == {"getRow", "headRow", "getMany", "scan", "scanPage"}
    assert "PutOp" not in found["components"]["schemas"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"db.example:8080", "http://db.example:8080"),
        (b"10.0.0.1", "http://10.0.0.1"),
        (b"[::1]:8080", "http://[::1]:8080"),
        (b"", "/"),
        (b"host/path", "/"),
        (b'"><script>', "/"),
        (b"host:8080\n", "/"),
    ],
)
def test_the_server_is_the_address_that_the_client_used(host: bytes, expected: str) -> None:
    scope = {"type": "http", "scheme": "http", "headers": [(b"accept", b"*/*"), (b"host", host)]}
    assert server_url(scope) == expected
    assert server_url({"scheme": "http", "headers": []}) == "/"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_port_names_itself_as_the_server() -> None:
    async with open_port() as port:
        answer = await port.client.get("/openapi.json", headers={"Host": "db.example:8080"})
        assert answer.json()["servers"] == [{"url": "http://db.example:8080"}]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_admin_port_describes_itself_the_same_way() -> None:
    app = Starlette(routes=[openapi_route(FLUSH, GC, checkpoint_paths(with_scope=True))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin:9464") as client:
        found = (await client.get("/openapi.json")).json()
    assert found["servers"] == [{"url": "http://admin:9464"}]
    assert all(call["tags"] == ["admin"] and call["operationId"] for call in calls(found))
