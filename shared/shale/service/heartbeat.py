"""Two background loops of every daemon: one measures event-loop lag, one probes the store."""

import asyncio

import anyio

from shale.env import Env, ThreadCpu
from shale.errors import ShaleError
from shale.service.health import Health, StoreReachability
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics

TICK_S = 0.1
PROBE_TIMEOUT_S = 5.0


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
