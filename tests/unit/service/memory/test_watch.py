"""The watch of memory: metrics, the cache and the refusal of writes."""

from collections.abc import Callable

import anyio
import pytest
from prometheus_client import generate_latest

from shale.core.memory_account import MemoryAccount, MemoryPart
from shale.env import Env
from shale.service.memory.watch import export_memory, resident_bytes, trim_interval_s, watch_memory
from shale.sst.budget import MemoryBudget
from shale.telemetry.metrics import Metrics

MIB = 1 << 20


def test_the_metrics_tell_the_parts_the_limit_and_the_refusals() -> None:
    """Several meters of one part are added."""
    account, metrics = MemoryAccount(500), Metrics()
    export_memory(metrics, account)
    account.add_meter(MemoryPart.REQUESTS, lambda: 30)
    account.add_meter(MemoryPart.REQUESTS, lambda: 12)
    account.add_cache(MemoryBudget(64 * MIB))
    account.refuse()
    account.dropped_connections += 3
    metrics.refresh()
    text = generate_latest(metrics.registry).decode()
    assert 'shale_memory_bytes{part="requests"} 42.0' in text
    assert 'shale_memory_bytes{part="cache"} 0.0' in text
    assert "shale_memory_limit_bytes 500.0" in text
    assert "shale_memory_refusals_total 1.0" in text
    assert "shale_memory_dropped_connections_total 3.0" in text
    assert account.total_bytes == 42


@pytest.mark.anyio
async def test_a_process_above_its_limit_shrinks_its_cache_and_refuses_writes() -> None:
    """And takes writes again when the limit is above what it holds."""
    account = MemoryAccount(1 << 50)
    cache = MemoryBudget(64 * MIB)
    account.add_cache(cache)

    async def until(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not condition():  # noqa: ASYNC110 - the watch notifies nothing
                await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_memory, Env.system(), Metrics(), account)
        account.limit_bytes = resident_bytes(account) // 2
        await until(lambda: account.is_full)
        assert cache.capacity_bytes == 8 * MIB
        account.limit_bytes = 1 << 50
        await until(lambda: not account.is_full and cache.capacity_bytes == 64 * MIB)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("limit_mib", "interval_s"), [(128, 0.125), (512, 0.5), (1024, 1.0), (65536, 1.0)])
def test_the_smaller_a_process_the_sooner_it_returns_freed_pages(limit_mib: int, interval_s: float) -> None:
    assert trim_interval_s(limit_mib * MIB) == interval_s
