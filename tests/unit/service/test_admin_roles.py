"""The admin port: administration needs its role; reads need any token; probes, metrics and status need none."""

import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shale.env import SystemClock
from shale.service.access import AccessTokens, Quotas, Role
from shale.service.admin import AdminApp
from shale.service.config.admin_section import AdminSection
from shale.service.health import Health
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock
from tests.unit.service.admin_client import admin_client, problem

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def admin_app(*roles: Role, tokens: AccessTokens | None = None) -> AdminApp:
    metrics = Metrics(db="db")
    tokens = tokens or AccessTokens((SecretStr(role.label), role) for role in roles)
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


@pytest.mark.parametrize("second", ["Bearer admin", "Bearer other", "Basic x"])
async def test_two_authorization_headers_are_refused(second: str) -> None:
    async with admin_client(admin_app(*Role)) as client:
        both = [("Authorization", "Bearer admin"), ("X-Other", "1"), ("authorization", second)]
        for headers in (both, both[::-1]):
            refused = await client.post("/v1/admin/flush", headers=headers)
            assert problem(refused, 400)["detail"] == "Authorization is given twice"
        repeated = [("Authorization", "Bearer admin"), ("X-Other", "1"), ("X-Other", "2")]
        assert (await client.post("/v1/admin/flush", headers=repeated)).status_code == 200


@pytest.mark.parametrize("path", ["/metrics/", "/livez/", "/v1/admin/flush/"])
async def test_a_path_with_a_slash_at_its_end_is_not_redirected(path: str) -> None:
    """A redirect would lead to the host that the client has sent."""
    async with admin_client(admin_app()) as client:
        refused = await client.get(path, headers={"Host": "evil.example"})
    assert path in problem(refused, 404)["detail"]
    assert "location" not in refused.headers


async def test_changing_the_log_level_needs_the_role_admin() -> None:
    async with admin_client(admin_app(*Role)) as client:
        headers = {"Authorization": "Bearer write"}
        refused = await client.put("/v1/admin/log-level", json="info", headers=headers)
        assert "role admin; the role of this token is write" in problem(refused, 403)["detail"]


METHODS = ("GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE", "TRACE")


@pytest.mark.parametrize("path", ["/v1/admin/log-level", "/v1/admin/two", "/metrics"])
async def test_a_method_that_a_path_has_not_is_told_which_ones_it_has(path: str) -> None:
    app = admin_app()
    app.add_route(Route("/v1/admin/two", _flush, methods=["GET"]))
    app.add_route(Route("/v1/admin/two", _flush, methods=["POST"]))
    async with admin_client(app) as client:
        answers = {method: await client.request(method, path) for method in METHODS}
        allowed = [method for method, answer in answers.items() if answer.status_code != 405]
        assert len(allowed) < len(METHODS)
        for method in METHODS:
            if method not in allowed:
                assert answers[method].headers["allow"] == ", ".join(sorted(allowed))


async def test_a_log_level_that_is_none_is_a_problem() -> None:
    async with admin_client(admin_app()) as client:
        assert "one of debug" in problem(await client.put("/v1/admin/log-level", content=b"{"), 400)["detail"]
        large = await client.put("/v1/admin/log-level", content=bytes(1 << 20))
        assert "more than" in problem(large, 413)["detail"]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/startupz", "/readyz", "/statusz"])
async def test_probes_and_metrics_need_no_token(path: str) -> None:
    async with admin_client(admin_app(Role.ADMIN)) as client:
        assert (await client.get(path)).status_code in (200, 503)


async def test_a_token_over_its_limit_gets_429_and_others_do_not() -> None:
    clock, metrics = ManualClock(), Metrics(db="db")
    quotas = Quotas(clock, metrics, AdminSection(requests_per_second=0.5).rates(), is_admin=True)
    tokens = AccessTokens([(SecretStr("a-1"), Role.ADMIN), (SecretStr("a-2"), Role.ADMIN)], quotas=quotas)
    app = AdminApp(Health(clock, metrics), metrics, tokens)
    app.add_route(Route("/v1/admin/flush", _flush, methods=["POST"]))
    async with admin_client(app) as client:
        one, other = ({"Authorization": f"Bearer {token}"} for token in ("a-1", "a-2"))
        assert (await client.post("/v1/admin/flush", headers=one)).status_code == 200
        for method, path in (("POST", "flush"), ("GET", "log-level"), ("POST", "no-such-call")):
            refused = await client.request(method, f"/v1/admin/{path}", headers=one)
            document = problem(refused, 429)
            assert document["detail"].startswith("admin.requests_per_second is used up, and nothing was done")
            assert (document["retryable"], refused.headers["retry-after"]) == (True, "1")
        assert (await client.post("/v1/admin/flush", headers=other)).status_code == 200
        assert (await client.post("/v1/admin/flush")).status_code == 401, "without a token, before the limit"
        for path in ("/metrics", "/livez", "/statusz"):
            assert (await client.get(path, headers=one)).status_code == 200
        text = (await client.get("/metrics")).text
        assert 'shale_admin_quota_refusals_total{db="db",role="admin"} 3.0' in text
        assert 'shale_admin_calls_total{db="db",outcome="refused"} 3.0' in text, (
            "two 429 and one 401; reads do not count"
        )
        clock.sleep(2)
        assert (await client.post("/v1/admin/flush", headers=one)).status_code == 200
        quotas.replace(AdminSection().rates())
        answers = [await client.post("/v1/admin/flush", headers=one) for _ in range(3)]
        assert [each.status_code for each in answers] == [200] * 3


async def test_clients_of_an_open_port_share_a_limit() -> None:
    metrics = Metrics(db="db")
    quotas = Quotas(ManualClock(), metrics, AdminSection(requests_per_second=1).rates(), is_admin=True)
    async with admin_client(AdminApp(Health(SystemClock(), metrics), metrics, AccessTokens(quotas=quotas))) as client:
        answers = [await client.get("/v1/admin/log-level") for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 429]


async def test_a_port_without_tokens_is_open() -> None:
    async with admin_client(admin_app()) as client:
        assert (await client.post("/v1/admin/flush")).status_code == 200


@pytest.mark.parametrize("path", ["/flush", "/v1/flush", "/console/flush"])
async def test_a_call_that_would_not_be_audited_is_not_accepted(path: str) -> None:
    with pytest.raises(ValueError, match="must be below /v1/admin/"):
        admin_app().add_route(Route(path, _flush, methods=["POST"]))
