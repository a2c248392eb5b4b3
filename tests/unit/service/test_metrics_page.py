"""``/metrics``: its formats, and what many clients that ask for it at once cost."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from shale.env import SystemClock
from shale.service.admin import AdminApp, register_process_metrics
from shale.service.health import Health
from shale.telemetry.metrics import Metrics
from shale.telemetry.metrics_page import MetricsPage
from tests.unit.service.admin_client import admin_client

pytestmark = pytest.mark.anyio

PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics(db="db")
    register_process_metrics(made, role="writer", settings_hash="0", started_s=0.0)
    made.histogram("shale_http_request_duration_seconds", route="kv").observe_traced(0.5, "0af7651916cd43dd")
    return made


def admin_app(metrics: Metrics) -> AdminApp:
    return AdminApp(Health(SystemClock(), metrics), metrics)


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain;version=x",
        "application/openmetrics-text; version=abc",
        "text/plain; version=" + "9" * 5000,
        "text/plain; version=.",
    ],
    ids=["word", "openmetrics", "long", "point"],
)
async def test_a_version_that_is_no_number_gets_plain_text(metrics: Metrics, accept: str) -> None:
    async with admin_client(admin_app(metrics)) as client:
        answer = await client.get("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, PLAIN)
    assert "# TYPE shale_build_info gauge" in answer.text


def _without_process(text: str) -> list[str]:
    """Return the lines whose values do not change by themselves."""
    return [line for line in text.splitlines() if not line.startswith(("process_", "python_gc"))]


async def test_the_page_is_that_of_the_client_library(metrics: Metrics) -> None:
    async with admin_client(admin_app(metrics)) as client:
        plain = await client.get("/metrics")
        other = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert _without_process(plain.text) == _without_process(generate_latest(metrics.registry).decode())
    expected = openmetrics.generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call]
    assert _without_process(other.text) == _without_process(expected)
    assert "0af7651916cd43dd" in other.text
    assert other.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")


async def test_clients_that_wait_share_an_encoding(metrics: Metrics) -> None:
    encodings = 0

    def count() -> None:
        nonlocal encodings
        encodings += 1

    metrics.before_scrape(count)
    answers: list[int] = []
    async with admin_client(admin_app(metrics)) as client, anyio.create_task_group() as tasks:

        async def scrape() -> None:
            answers.append((await client.get("/metrics")).status_code)

        for _ in range(40):
            tasks.start_soon(scrape)
    assert answers == [200] * 40
    assert encodings <= 3


async def test_a_page_has_the_values_of_after_its_request(metrics: Metrics) -> None:
    code = metrics.gauge("shale_exit_code", component="writer")
    async with admin_client(admin_app(metrics)) as client, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(client.get, "/metrics")
        await checkpoint()
        for value in (3.0, 4.0, 5.0):
            code.set(value)
            text = (await client.get("/metrics")).text
            assert [line.split()[1] for line in text.splitlines() if line.startswith("shale_exit_code")] == [str(value)]


async def test_other_tasks_run_during_an_encoding(metrics: Metrics) -> None:
    for db in range(10):
        metrics.for_database(f"db-{db}").histogram("shale_http_request_duration_seconds", route="kv")
    rounds, at_start = 0, 0

    def started() -> None:
        nonlocal at_start
        at_start = rounds

    async def turn() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await checkpoint()

    metrics.before_scrape(started)
    page = MetricsPage(metrics)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        await checkpoint()
        data, _ = await page.encode("")
        assert data.count(b"\n") > 200
        assert rounds > at_start
        tasks.cancel_scope.cancel()
