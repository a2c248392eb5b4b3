"""Every call of the data port needs the role that belongs to it; the answer says what is missing."""

import httpx
import pytest
from pydantic import SecretStr

from shale.service.access import AccessTokens, Role
from tests.unit.api.harness import b64, open_port

pytestmark = pytest.mark.anyio

ROW = {"ops": [["put", b64(b"a"), b64(b"1")]]}
READS = [
    ("GET", "/v1/kv/a", None),
    ("HEAD", "/v1/kv/a", None),
    ("POST", "/v1/get-many", {"keys": []}),
    ("POST", "/v1/scan", {}),
    ("POST", "/v1/scan-page", {}),
    ("POST", "/v1/snapshots", {}),
    ("DELETE", "/v1/snapshots/x", None),
    ("GET", "/v1/writer", None),
    ("GET", "/openapi.json", None),
]
WRITES = [
    ("PUT", "/v1/kv/b", {}),
    ("PATCH", "/v1/kv/b", {}),
    ("DELETE", "/v1/kv/b", None),
    ("POST", "/v1/batch", ROW),
    ("POST", "/v1/txn", ROW),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tokens() -> AccessTokens:
    return AccessTokens((SecretStr(role.label), role) for role in Role)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "path", "body"), READS)
async def test_a_read_needs_any_role(method: str, path: str, body: object) -> None:
    async with open_port(tokens=tokens()) as port:
        await port.db.put(b"a", b"1")
        for role in Role:
            answer = await port.client.request(method, path, json=body, headers=bearer(role.label))
            assert answer.status_code in (200, 201, 204)
        assert (await port.client.request(method, path, json=body)).status_code == 401


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_a_write_needs_the_role_write(method: str, path: str, body: object) -> None:
    async with open_port(tokens=tokens(), merge_operator="concatenate") as port:
        answer = await port.client.request(method, path, json=body, headers=bearer("read"))
        refused(answer, 403, "this call needs a token with the role write; the role of this token is read")
        assert answer.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'
        assert port.db.status.last_seq == 0
        for role in ("write", "admin"):
            answer = await port.client.request(method, path, json=body, headers=bearer(role))
            assert answer.status_code in (200, 204)


@pytest.mark.parametrize(
    ("header", "detail", "challenge"),
    [
        (None, "a bearer token is required", "Bearer"),
        ("", "a bearer token is required", "Bearer"),
        ("Bearer", "a bearer token is required", "Bearer"),
        ("Basic cmVhZA==", "a bearer token is required", "Bearer"),
        ("Bearer nope", "the bearer token is unknown", 'Bearer error="invalid_token"'),
    ],
)
async def test_a_missing_and_an_unknown_token_are_told_apart(header: str | None, detail: str, challenge: str) -> None:
    async with open_port(tokens=tokens()) as port:
        headers = {} if header is None else {"Authorization": header}
        answer = await port.client.get("/v1/kv/a", headers=headers)
        refused(answer, 401, detail)
        assert answer.headers["www-authenticate"] == challenge
        assert (await port.client.get("/no/such/path", headers=headers)).status_code == 401


async def test_the_scheme_is_in_any_case_and_a_port_without_tokens_takes_any() -> None:
    async with open_port(tokens=tokens()) as port:
        assert (await port.client.get("/v1/kv/a", headers={"Authorization": "bearer  read "})).status_code == 404
    async with open_port() as port:
        assert (await port.client.put("/v1/kv/a", content=b"1", headers=bearer("any"))).status_code == 204


async def test_a_replaced_token_counts_from_the_next_request() -> None:
    known = tokens()
    async with open_port(tokens=known) as port:
        known.replace([(SecretStr("new"), Role.READ)])
        assert (await port.client.get("/v1/kv/a", headers=bearer("read"))).status_code == 401
        assert (await port.client.get("/v1/kv/a", headers=bearer("new"))).status_code == 404


def refused(answer: httpx.Response, status: int, detail: str) -> None:
    """Check a problem document."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["status"], answer.json()["detail"]) == (status, status, detail)


async def test_two_authorization_headers_are_refused() -> None:
    async with open_port(tokens=tokens()) as port:
        both = [("Authorization", "Bearer other"), ("Authorization", "Bearer write")]
        for headers in (both, both[::-1]):
            answer = await port.client.put("/v1/kv/a", content=b"1", headers=headers)
            refused(answer, 400, "Authorization is given twice")
        assert port.db.status.last_seq == 0
