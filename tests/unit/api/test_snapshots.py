"""Snapshots of clients: all reads see one state until the lease expires."""

import anyio
import pytest

from tests.unit.api.harness import b64, open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_snapshot_shows_what_was_there() -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"old")
        opened = await port.post("/v1/snapshots", {})
        assert opened.status_code == 201
        snapshot = opened.json()
        assert snapshot["seq"] == 1
        assert opened.headers["location"] == f"/v1/snapshots/{snapshot['id']}"
        await port.db.put(b"a", b"new")
        await port.db.put(b"b", b"new")
        await port.db.flush("memtable")
        query = f"?snapshot={snapshot['id']}"
        assert (await port.client.get(f"/v1/kv/a{query}")).content == b"old"
        assert (await port.client.get(f"/v1/kv/b{query}")).status_code == 404
        many = await port.post(f"/v1/get-many{query}", {"keys": [b64(b"a"), b64(b"b")]})
        assert many.json() == {"values": [b64(b"old"), None]}
        assert (await port.scan(query))[0] == [b"a"]
        assert (await port.client.get("/v1/kv/a")).content == b"new"


async def test_a_lease_ends_unless_it_is_renewed() -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        left, kept = [(await port.post("/v1/snapshots", {"lifetime_ms": 5000})).json() for _ in range(2)]
        port.clock.ahead_s += 4
        renewed = await port.client.put(f"/v1/snapshots/{kept['id']}", json={"lifetime_ms": 5000})
        assert renewed.json()["expires_ms"] >= kept["expires_ms"] + 4000
        port.clock.ahead_s += 4
        assert (await port.client.get(f"/v1/kv/a?snapshot={left['id']}")).status_code == 410
        assert (await port.client.put(f"/v1/snapshots/{left['id']}")).status_code == 410
        assert (await port.client.get(f"/v1/kv/a?snapshot={kept['id']}")).status_code == 200


async def test_a_lease_without_requests_expires() -> None:
    """The state that it pins is released without a further request."""
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        await port.post("/v1/snapshots", {"lifetime_ms": 20})
        assert port.db.status.open_snapshots == 1
        with anyio.fail_after(60):
            while port.db.status.open_snapshots:  # noqa: ASYNC110 - no event tells it
                await anyio.sleep(0.01)


async def test_a_closed_snapshot_is_over_and_may_be_closed_again() -> None:
    async with open_port() as port:
        snapshot = (await port.client.post("/v1/snapshots")).json()["id"]
        for _ in range(2):
            assert (await port.client.delete(f"/v1/snapshots/{snapshot}")).status_code == 204
        answer = await port.client.get(f"/v1/kv/a?snapshot={snapshot}")
        assert (answer.status_code, answer.json()["kind"]) == (410, "data")


async def test_there_is_room_for_so_many() -> None:
    async with open_port(limits={"max_snapshots": 2}) as port:
        first = (await port.post("/v1/snapshots", {"lifetime_ms": 1000})).json()["id"]
        await port.post("/v1/snapshots", {})
        refused = await port.post("/v1/snapshots", {})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        await port.client.delete(f"/v1/snapshots/{first}")
        assert (await port.post("/v1/snapshots", {"lifetime_ms": 1000})).status_code == 201
        port.clock.ahead_s += 2
        assert (await port.post("/v1/snapshots", {})).status_code == 201


@pytest.mark.parametrize("lifetime", [0, -1, "1s", 10**9, True, 1.5])
async def test_a_lifetime_has_bounds(lifetime: object) -> None:
    async with open_port() as port:
        assert (await port.post("/v1/snapshots", {"lifetime_ms": lifetime})).status_code == 400


@pytest.mark.parametrize("query", ["?snapsot=1", "?snapshot=a&snapshot=b", "?durability=memory"])
async def test_a_query_that_means_nothing_is_refused(query: str) -> None:
    async with open_port() as port:
        assert (await port.client.get(f"/v1/kv/a{query}")).status_code == 400
        assert (await port.client.put(f"/v1/kv/a{query}", content=b"1")).status_code == 400
        assert (await port.post(f"/v1/scan{query}", {})).status_code == 400
        assert port.db.status.last_seq == 0
