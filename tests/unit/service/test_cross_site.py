"""Pages of other sites cannot make a browser change something on a port without tokens."""

import pytest
from pydantic import SecretStr

from shale.service.access import AccessTokens, Role
from tests.unit.api.harness import b64, open_port
from tests.unit.service.admin_client import admin_client, problem
from tests.unit.service.test_admin_roles import admin_app

pytestmark = pytest.mark.anyio

FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://port.evil.example"},
    {"Origin": "http://port:81"},
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
]
OWN = [
    {},
    {"Origin": "http://port"},
    {"Origin": "HTTP://Port"},
    {"Origin": "https://port"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://port", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "https://proxy.example", "Sec-Fetch-Site": "same-origin"},
]
ROW = b'{"ops": [["put", "%s", "%s"]]}' % (b64(b"a").encode(), b64(b"1").encode())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("headers", FOREIGN)
async def test_an_open_data_port_refuses_calls_of_other_sites(headers: dict[str, str]) -> None:
    async with open_port() as port:
        document = problem(await port.client.post("/v1/batch", content=ROW, headers=headers), 403)
        assert document["detail"].startswith("a page of another site sent this call")
        problem(await port.client.request("DELETE", "/v1/kv/a", headers=headers), 403)
        assert port.db.status.last_seq == 0
        assert (await port.client.get("/v1/writer", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", OWN)
async def test_an_open_data_port_takes_calls_of_programs_and_its_own_site(headers: dict[str, str]) -> None:
    async with open_port() as port:
        assert (await port.client.post("/v1/batch", content=ROW, headers=headers)).status_code == 200


async def test_with_a_token_the_site_does_not_matter() -> None:
    async with open_port(tokens=AccessTokens([(SecretStr("w"), Role.WRITE)])) as port:
        headers = {"Origin": "http://app.example", "Authorization": "Bearer w"}
        assert (await port.client.post("/v1/batch", content=ROW, headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", FOREIGN)
async def test_an_open_admin_port_refuses_calls_of_other_sites(headers: dict[str, str]) -> None:
    app = admin_app()
    async with admin_client(app) as client:
        problem(await client.post("/v1/admin/flush", headers=headers), 403)
        assert (await client.get("/v1/admin/log-level", headers=headers)).status_code == 200
        own = {"Origin": "http://admin", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/v1/admin/flush", headers=own)).status_code == 200
        assert 'shale_admin_calls_total{db="db",outcome="refused"} 1.0' in (await client.get("/metrics")).text


HERE = ["localhost", "LOCALHOST:9090", "console.localhost:1", "localhost.", "127.0.0.1:80", "127.9.9.9", "[::1]:80"]
ELSEWHERE = ["evil.example", "Evil.Example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "nolocalhost"]
MALFORMED = ["localhost:80@evil.example", "[::1].evil.example", "[", "[::1:80", "[127.0.0.1]", "localhost:evil"]


def local_port() -> AccessTokens:
    return AccessTokens(is_local=True)


@pytest.mark.parametrize("host", HERE)
async def test_a_local_port_is_called_by_an_address_or_localhost(host: str) -> None:
    async with open_port(tokens=local_port()) as port:
        assert (await port.client.post("/v1/batch", content=ROW, headers={"Host": host})).status_code == 200
        assert (await port.client.get("/v1/writer", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_a_local_port_refuses_the_names_that_pages_give_its_address(host: str) -> None:
    async with open_port(tokens=local_port()) as port:
        for method, path in (("POST", "/v1/batch"), ("GET", "/v1/writer"), ("GET", "/v1/scan"), ("GET", "/v1/kv/a")):
            document = problem(await port.client.request(method, path, headers={"Host": host}), 403)
            assert document["detail"].startswith(f"the header Host names {host.lower().partition(':')[0]!r}")
        assert port.db.status.last_seq == 0
    app = admin_app(tokens=local_port())
    async with admin_client(app) as client:
        problem(await client.get("/v1/admin/log-level", headers={"Host": host}), 403)
        problem(await client.post("/v1/admin/flush", headers={"Host": host}), 403)
        problem(await client.get("/statusz", headers={"Host": host}), 403)
        problem(await client.get("/console.js", headers={"Host": host}), 403)
        for path in ("/livez", "/metrics"):
            assert (await client.get(path, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", MALFORMED)
async def test_a_local_port_refuses_what_is_no_host(host: str) -> None:
    async with open_port(tokens=local_port()) as port:
        document = problem(await port.client.get("/v1/writer", headers={"Host": host}), 403)
        assert document["detail"].startswith(f"the header Host names {host!r}")


async def test_with_a_token_a_local_port_takes_any_name() -> None:
    tokens = AccessTokens([(SecretStr("w"), Role.WRITE)], is_local=True)
    async with open_port(tokens=tokens) as port:
        headers = {"Host": "db.example", "Authorization": "Bearer w"}
        assert (await port.client.post("/v1/batch", content=ROW, headers=headers)).status_code == 200
