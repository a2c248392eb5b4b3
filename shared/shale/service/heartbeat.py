"""Background loops of every daemon: they measure the event loop and the store's clock, and probe the store."""

import asyncio
import contextlib

import anyio

from shale.env import Env, ThreadCpu
from shale.errors import ShaleError
from shale.service.health import Health, StoreReachability
from shale.store.failing_writes import FailingWrites
from shale.store.port import ObjectStore
from shale.store.preflight import measure_clock, with_short_retries
from shale.telemetry.instruments import Gauge
from shale.telemetry.metrics import Metrics

TICK_S = 0.1
PROBE_TIMEOUT_S = 5.0
CLOCK_TIMEOUT_S = 10.0


async def measure_event_loop(env: Env, metrics: Metrics, health: Health) -> None:
    """Record the lag of the event loop until cancelled."""
    lag = metrics.histogram("shale_event_loop_lag_seconds")
    beat = health.watch("event_loop")
    tasks = metrics.gauge("shale_tasks")
    queue = metrics.gauge("shale_executor_queue")

    def before_scrape() -> None:
        tasks.set(len(asyncio.all_tasks()))
        queue.set(env.cpu.waiting if isinstance(env.cpu, ThreadCpu) else 0)

    metrics.before_scrape(before_scrape)
    while True:
        start_s = env.clock.monotonic_s()
        await anyio.sleep(TICK_S)
        lag.observe(max(0.0, env.clock.monotonic_s() - start_s - TICK_S))
        beat()


async def probe_store(store: ObjectStore, key: str, reachability: StoreReachability, *, interval_s: float) -> None:
    """Request one object periodically.  Any response counts, also that the object does not exist."""
    while True:
        answered = False
        with anyio.move_on_after(PROBE_TIMEOUT_S):
            try:
                await store.head(key)
                answered = True
            except ShaleError:
                answered = False
        if answered:
            reachability.succeeded()
        else:
            reachability.failed()
        await anyio.sleep(interval_s)


async def watch_writes(writes: FailingWrites, failing: Gauge, metrics: Metrics, *, grace_s: float) -> None:
    """Export for how long writes fail, and log an error after ``grace_s`` seconds."""
    metrics.before_scrape(lambda: failing.set(writes.failing_s()))
    while True:
        await anyio.sleep(max(0.1, min(1.0, grace_s / 3)))
        writes.report(grace_s)


async def watch_clock(store: ObjectStore, env: Env, prefix: str, metrics: Metrics, *, interval_s: float) -> None:
    """Measure the store's clock periodically: a clock that was right at the start may drift, or be set.

    A failed measurement leaves the last one; ``probe_store`` reports a store that does not answer.
    """
    tried = with_short_retries(store, CLOCK_TIMEOUT_S)
    while True:
        await anyio.sleep(interval_s)
        with anyio.move_on_after(CLOCK_TIMEOUT_S), contextlib.suppress(ShaleError):
            await measure_clock(tried, env, prefix, metrics)
