"""Attempts are counted under the retry layer, with labels from closed sets."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shale.env import Env, InlineCpu, SystemClock
from shale.errors import AlreadyExists
from shale.store.connect import connect
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy, StoreOptions
from shale.store.port import CREATE, open_local_of
from shale.store.preflight import require_safe_store
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule

pytestmark = pytest.mark.anyio
ENV = Env(SystemClock(), random.Random(3), InlineCpu())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    found = 0.0
    for family in metrics.registry.collect():
        for point in family.samples:
            if point.name == name and labels.items() <= point.labels.items():
                found += point.value
    return found


async def test_each_attempt_counts() -> None:
    metrics = Metrics(db="orders")
    faulty = FaultyStore(MemoryStore(), random.Random(1))
    options = StoreOptions(retry=RetryPolicy(first_delay_s=0))
    store = connect(faulty, ENV, metrics, options, component="writer", store_type="wal")
    faulty.add(Rule(fault=Fault.BEFORE, op="put", times=2))
    await store.put("a", b"", mode=CREATE)
    with pytest.raises(AlreadyExists):
        await store.put("a", b"", mode=CREATE)
    await store.get_if_changed("a", "x")
    await store.list("")
    labels = {"db": "orders", "component": "writer", "store_type": "wal"}
    requests = "slatedb_object_store_requests_total"
    errors = "slatedb_object_store_errors_total"
    assert sample(metrics, requests, op="put", api="put", **labels) == 4
    assert sample(metrics, requests, op="get", api="head", **labels) == 1
    assert sample(metrics, requests, op="get", api="get", **labels) == 1
    assert sample(metrics, requests, op="get", api="list", **labels) == 1
    assert sample(metrics, errors, api="put", error_type="network", **labels) == 2
    assert sample(metrics, errors, api="put", error_type="precondition", **labels) == 1
    assert sample(metrics, "slatedb_object_store_request_duration_seconds_count", api="put", **labels) == 4


async def test_bytes_count_in_both_directions(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"123"
        yield b"4567"

    metrics = Metrics(db="orders")
    store = connect(f"file://{tmp_path}", ENV, metrics, component="writer")
    await store.put("a", b"12345", mode=CREATE)
    await store.put("b", [b"12", memoryview(b"345")])
    with pytest.raises(AlreadyExists):
        await store.put("a", b"123456789", mode=CREATE)
    await store.put_stream("c", parts())
    found = await store.get("a")
    assert found is not None
    assert found.meta.etag is not None
    await store.get_if_changed("a", found.meta.etag)
    await store.get_range("c", 1, 3)
    await store.get("none")
    assert (opener := open_local_of(store)) is not None
    assert (opened := opener("c")) is not None
    assert opened.read_into(memoryview(bytearray(4)), 2) == 4
    metrics.refresh()
    name = "slatedb_object_store_bytes_total"
    assert sample(metrics, name, component="writer", direction="written") == 5 + 5 + 7
    assert sample(metrics, name, component="writer", direction="read") == 5 + 2 + 4


async def test_every_series_exists_at_the_start_and_there_are_few() -> None:
    metrics = Metrics(db="orders")
    connect(MemoryStore(), ENV, metrics, component="gc")
    ours = [
        point
        for family in metrics.registry.collect()
        for point in family.samples
        if point.labels.get("component") == "gc" and not point.name.endswith("_created")
    ]
    assert 0 < len(ours) < 1000


async def test_the_start_up_check_measures_the_clock() -> None:
    class Ahead(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + 90_000

    metrics = Metrics(db="orders")
    await require_safe_store(MemoryStore(Ahead()), ENV, metrics=metrics)
    assert sample(metrics, "slatedb_clock_skew_seconds") == pytest.approx(90, abs=2)
