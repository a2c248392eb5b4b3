"""Responses to a client when the server fails."""

import asyncio
import random

import httpx

from shale.api.app import Api, Route
from shale.api.messages import Request, Response
from shale.api.settings import HttpSection
from shale.env import Env, InlineCpu, SystemClock
from shale.service.access import Role
from shale.telemetry.metrics import Metrics


async def broken(call: Request) -> Response:
    raise RuntimeError("a bug")


async def fine(call: Request) -> Response:
    return Response(200, b"fine")


async def ask(metrics: Metrics) -> tuple[httpx.Response, httpx.Response]:
    routes = [Route("kv", {"GET": broken}), Route("kv", {"PUT": fine}, Role.WRITE)]
    env = Env(SystemClock(), random.Random(1), InlineCpu())
    api = Api(routes, HttpSection(), metrics, env)
    transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://writer") as client:
        return await client.get("/v1/kv/key"), await client.put("/v1/kv/key")


def total(metrics: Metrics, name: str, **labels: str) -> float:
    samples = [sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def test_a_mistake_of_ours_is_a_problem_document_and_is_counted() -> None:
    metrics = Metrics(db="db")
    failed, served = asyncio.run(ask(metrics))
    assert (failed.status_code, failed.headers["content-type"]) == (500, "application/problem+json")
    assert failed.json()["kind"] == "internal"
    assert "a bug" not in failed.text
    assert served.content == b"fine"
    assert total(metrics, "shale_http_requests_total", route="kv", category="read", status="5xx") == 1
    assert total(metrics, "shale_http_requests_total", route="kv", category="write", status="2xx") == 1
    assert total(metrics, "shale_http_requests_inflight") == 0
