"""Watches the memory of a daemon: shrinks caches and refuses writes before the kernel kills the process."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import anyio

from shale.core.memory_account import MemoryAccount, MemoryPart
from shale.core.memory_plan import PROCESS_BYTES, MemoryState, decide_memory
from shale.env import Env
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

TICK_S = 0.1
TRIM_INTERVAL_S = 1.0
_STATM = Path("/proc/self/statm")
log = get_logger("memory")


async def watch_memory(env: Env, metrics: Metrics, account: MemoryAccount) -> None:
    """Measure the process, and act as ``decide_memory`` says, until cancelled."""
    export_memory(metrics, account)
    cache_default_bytes: int | None = None
    trimmed_s = -TRIM_INTERVAL_S
    trim = _heap_trim()
    while True:
        await anyio.sleep(TICK_S)
        cache = account.cache
        if cache is not None and cache_default_bytes is None:
            cache_default_bytes = cache.capacity_bytes
        state = MemoryState(
            process_bytes=resident_bytes(account),
            cache_bytes=0 if cache is None else cache.capacity_bytes,
            cache_used_bytes=0 if cache is None else cache.used_bytes,
            is_full=account.is_full,
        )
        decision = decide_memory(account.limit_bytes, cache_default_bytes or 0, state)
        if cache is not None and decision.cache_bytes != cache.capacity_bytes:
            cache.resize(decision.cache_bytes)
        now_s = env.clock.monotonic_s()
        if decision.trims and trim is not None and now_s - trimmed_s >= trim_interval_s(account.limit_bytes):
            trimmed_s = now_s
            trim()
        if decision.is_full != account.is_full:
            account.is_full = decision.is_full
            event = Event.MEMORY_FULL if decision.is_full else Event.MEMORY_FREED
            _note(event, account, state.process_bytes)


def trim_interval_s(limit_bytes: int) -> float:
    """Return the time between two trims of the heap.

    A trim visits every free page: some milliseconds for each gigabyte.  A small process has little room for free pages.
    """
    return min(TRIM_INTERVAL_S, TRIM_INTERVAL_S * limit_bytes / (1 << 30))


def resident_bytes(account: MemoryAccount) -> int:
    """Return the resident memory of this process; an estimate where the kernel does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return PROCESS_BYTES + account.total_bytes


def export_memory(metrics: Metrics, account: MemoryAccount) -> None:
    """Export what the parts hold, the limit, and the refused requests and connections."""
    parts = {part: metrics.gauge("shale_memory_bytes", part=part.value) for part in MemoryPart}
    limit = metrics.gauge("shale_memory_limit_bytes")
    refusals = metrics.counter("shale_memory_refusals_total")
    drops = metrics.counter("shale_memory_dropped_connections_total")
    exported = exported_drops = 0

    def before_scrape() -> None:
        nonlocal exported, exported_drops
        for part, gauge in parts.items():
            gauge.set(account.used_bytes(part))
        limit.set(account.limit_bytes)
        refusals.inc(account.refusals - exported)
        exported = account.refusals
        drops.inc(account.dropped_connections - exported_drops)
        exported_drops = account.dropped_connections

    metrics.before_scrape(before_scrape)


def _note(event: Event, account: MemoryAccount, process_bytes: int) -> None:
    fields = {part.value: used for part in MemoryPart if (used := account.used_bytes(part))}
    note = log.warning if event is Event.MEMORY_FULL else log.info
    note(event, process_bytes=process_bytes, limit_bytes=account.limit_bytes, parts=fields)


def _heap_trim() -> Callable[[], object] | None:
    """Return glibc's ``malloc_trim(0)``; other C libraries have none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)
