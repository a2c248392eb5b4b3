"""Quotas of the data port: what counts, and the answer to a request over the quota."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from shale.service.access import AccessTokens, Quotas, Rates, Role
from shale.telemetry.metrics import Metrics
from tests.unit.api.harness import OffsetClock, open_port

pytestmark = pytest.mark.anyio

ONE_REQUEST = Rates(requests=0.001)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def limited(rates: Rates, *names: str, clock: OffsetClock | None = None) -> AccessTokens:
    """Return tokens with the role write and its quotas."""
    quotas = Quotas(OffsetClock() if clock is None else clock, Metrics(), {Role.WRITE: rates})
    return AccessTokens(((SecretStr(name), Role.WRITE) for name in names), quotas=quotas)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_token_over_its_quota_is_refused_and_another_is_not() -> None:
    clock = OffsetClock()
    async with open_port(tokens=limited(ONE_REQUEST, "w1", "w2", clock=clock)) as port:
        answers = [
            await port.client.put("/v1/kv/a", content=content, headers=bearer(token))
            for token, content in (("w1", b"1"), ("w1", b"2"), ("w2", b"3"))
        ]
        assert [answer.status_code for answer in answers] == [204, 429, 204]
        assert await port.db.get(b"a") == b"3"
        problem = answers[1].json()
        assert problem["detail"].startswith("quotas.write is used up, and nothing was done: try again after ")
        assert (problem["kind"], problem["retryable"]) == ("unavailable", True)
        assert 900 < int(answers[1].headers["retry-after"]) < 1000
        clock.ahead_s += 1001
        assert (await port.client.get("/v1/kv/a", headers=bearer("w1"))).status_code == 200


async def test_requests_that_are_refused_for_another_reason_do_not_count() -> None:
    async with open_port(tokens=limited(ONE_REQUEST, "w1")) as port:
        statuses = [
            (await port.client.request(method, path, headers=bearer(token))).status_code
            for method, path, token in (
                ("GET", "/v1/kv/a", "unknown"),
                ("GET", "/nowhere", "w1"),
                ("PUT", "/v1/scan", "w1"),
                ("GET", "/v1/kv/a", "w1"),
                ("GET", "/v1/kv/a", "w1"),
            )
        ]
        assert statuses == [401, 404, 405, 404, 429]


async def test_clients_of_an_open_port_share_the_quota_of_the_role_that_a_call_needs() -> None:
    async with open_port(tokens=limited(ONE_REQUEST)) as port:
        statuses = [
            (await port.client.request(method, "/v1/kv/a", headers=bearer(token))).status_code
            for method, token in (("PUT", "a"), ("PUT", "b"), ("GET", "a"), ("GET", "b"))
        ]
        assert statuses == [204, 429, 200, 200]


async def test_bytes_of_bodies_count_also_those_in_chunks_or_over_a_limit() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"v" * 100

    for size in (299, 300):
        async with open_port(tokens=limited(Rates(size_bytes=10), "w1", "w2"), limits={"max_body_bytes": size}) as port:
            put = await port.client.put("/v1/kv/a", content=chunks(), headers=bearer("w1"))
            assert put.status_code == (204 if size == 300 else 413)
            refused = await port.client.get("/v1/kv/a", headers=bearer("w1"))
            assert refused.status_code == 429
            assert 25 <= int(refused.headers["retry-after"]) <= 29
            assert (await port.client.get("/openapi.json", headers=bearer("w2"))).status_code == 200
