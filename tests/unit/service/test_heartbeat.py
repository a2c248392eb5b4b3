"""The background loops of a daemon."""

from collections.abc import Callable
from functools import partial

import anyio
import pytest

from shale.env import Env, SystemClock
from shale.errors import UnavailableError
from shale.service.heartbeat import watch_clock
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics

pytestmark = pytest.mark.anyio
ENV = Env.system(cpu_threads=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class StoreClock(SystemClock):
    """A clock that is set while the daemon runs."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class FailingStore(MemoryStore):
    """Refuses every other measurement."""

    fails = False
    failures = 0

    async def put(self, *args: object, **options: object) -> str | None:
        if self.fails:
            self.failures += 1
            raise UnavailableError("no answer")
        return await super().put(*args, **options)  # type: ignore[arg-type]


async def test_the_clock_is_measured_again_and_again() -> None:
    clock, metrics = StoreClock(), Metrics()
    store = FailingStore(clock)
    skew = metrics.gauge("slatedb_clock_skew_seconds")

    async def until(is_right: Callable[[], bool]) -> None:
        for _ in range(100_000):
            if is_right():
                return
            await anyio.sleep(0.001)
        raise AssertionError(f"{skew.value} s, {store.failures} failures")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(watch_clock, store, ENV, "orders", metrics, interval_s=0.001))
        clock.ahead_ms = 90_000
        await until(lambda: skew.value > 80)
        store.fails = True
        await until(lambda: store.failures > 3)
        assert skew.value > 80
        store.fails = False
        clock.ahead_ms = -30_000
        await until(lambda: skew.value < -20)
        tasks.cancel_scope.cancel()
