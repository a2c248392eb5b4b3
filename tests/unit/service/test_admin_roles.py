"""The admin port: administration needs its role; reads need any token; probes, metrics and status need none."""

import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shale.env import SystemClock
from shale.service.access import AccessTokens, Role
from shale.service.admin import AdminApp
from shale.service.health import Health
from shale.telemetry.metrics import Metrics
from tests.unit.service.admin_client import admin_client, problem

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def admin_app(*roles: Role) -> AdminApp:
    metrics = Metrics(db="db")
    tokens = AccessTokens((SecretStr(role.label), role) for role in roles)
    app = AdminApp(Health(SystemClock(), metrics), metrics, tokens)
    app.add_route(Route("/v1/admin/flush", _flush, methods=["POST"]))
    return app


async def _flush(request: Request) -> Response:
    return PlainTextResponse("flushed")


@pytest.mark.parametrize(
    ("method", "path", "role"), [("GET", "/v1/admin/log-level", Role.READ), ("POST", "/v1/admin/flush", Role.ADMIN)]
)
async def test_each_call_needs_its_role(method: str, path: str, role: Role) -> None:
    async with admin_client(admin_app(*Role)) as client:
        for mine in Role:
            answer = await client.request(method, path, headers={"Authorization": f"Bearer {mine.label}"})
            assert answer.status_code == (200 if mine >= role else 403)
        assert problem(await client.request(method, path), 401)["detail"] == "a bearer token is required"
        refused = await client.request(method, path, headers={"Authorization": "Bearer other"})
        assert problem(refused, 401)["detail"] == "the bearer token is unknown"


async def test_changing_the_log_level_needs_the_role_admin() -> None:
    async with admin_client(admin_app(*Role)) as client:
        headers = {"Authorization": "Bearer write"}
        refused = await client.put("/v1/admin/log-level", json="info", headers=headers)
        assert "role admin; the role of this token is write" in problem(refused, 403)["detail"]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/startupz", "/readyz", "/statusz"])
async def test_probes_and_metrics_need_no_token(path: str) -> None:
    async with admin_client(admin_app(Role.ADMIN)) as client:
        assert (await client.get(path)).status_code in (200, 503)


async def test_a_port_without_tokens_is_open() -> None:
    async with admin_client(admin_app()) as client:
        assert (await client.post("/v1/admin/flush")).status_code == 200
