"""One real database on disk: load, compact, scan, collect; the rate of each tenth beside the median of all tenths.

``SHALE_BENCH_GB`` sets the size, 2 by default.  It needs three times as much disk, and deletes it afterwards.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import numpy as np
import pyarrow as pa

import shale
from shale.admin.compactions import CompactionAdmin
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.requests import Sources
from shale.engine.options import DbOptions
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.store.local_store.adapter import LocalStore
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.bench.line import BenchLine

VALUE_BYTES = 1024
KEY_BYTES = 16
BATCH_ROWS = 20_000
TENTHS = 10
ROOT = "db"
_ENDS = 3
_POLL_S = 0.25
_NEVER = 1 << 30
_COLLECT = TaskOptions(min_age_s=0.0)
_OPTIONS = GcOptions(manifest=_COLLECT, wal=_COLLECT, compacted=_COLLECT, compactions=_COLLECT, detach=_COLLECT)
TARGET = "every tenth within 15 % of the median"


class Tenths:
    """When each tenth of some work was done."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._start = self._last = perf_counter()
        self._done = self._counted = 0.0
        self._next = 1
        self.rates: list[float] = []

    def reach(self, done: float) -> None:
        """Record that ``done`` of the total is done."""
        now = perf_counter()
        self._done = done
        if self._next <= TENTHS and done >= self._total * self._next / TENTHS:
            self.rates.append((done - self._counted) / (now - self._last))
            self._last, self._counted = now, done
            self._next = int(done * TENTHS / self._total) + 1

    def lines(self, name: str, unit_bytes: float) -> Iterator[BenchLine]:
        """Yield the rate, and how far the slowest and the fastest tenth are from the median."""
        middle = median(self.rates)
        total = self._done * unit_bytes / (self._last - self._start) / 1e6
        yield BenchLine(name=f"{name}", ours=total, unit="MB/s", target="-")
        for what, rate in (("slowest", min(self.rates)), ("fastest", max(self.rates))):
            yield BenchLine(name=f"{name}: {what} tenth", ours=100 * (rate / middle - 1), unit="%", target=TARGET)
        trend = 100 * (median(self.rates[-_ENDS:]) / median(self.rates[:_ENDS]) - 1)
        yield BenchLine(name=f"{name}: the last three tenths beside the first", ours=trend, unit="%", target="+-15 %")


def real_lines() -> Iterator[BenchLine]:
    """Yield the rates of a database of ``SHALE_BENCH_GB``."""
    rows = int(float(os.environ.get("SHALE_BENCH_GB", "2")) * 1e9) // (KEY_BYTES + VALUE_BYTES)
    with tempfile.TemporaryDirectory(prefix="shale-bench-scale-", dir=os.environ.get("SHALE_BENCH_DIR")) as folder:
        yield from asyncio.run(_measure(Path(folder), rows))


async def _measure(folder: Path, rows: int) -> list[BenchLine]:
    lines: list[BenchLine] = []
    row_bytes = KEY_BYTES + VALUE_BYTES
    options = DbOptions(l0_max_ssts=_NEVER, l0_max_ssts_per_key=_NEVER, wal_enabled=False)
    async with shale.Db.open(f"file://{folder}/{ROOT}", options=options) as db:
        lines += (await _load(db, rows)).lines("load", row_bytes)
        await db.flush("memtable")
    store, env = LocalStore(folder), Env.system()
    lines += (await _compact(store, env, folder, rows * row_bytes)).lines("compact", 1)
    async with shale.Db.open(f"file://{folder}/{ROOT}", wal_enabled=False) as db:
        lines += (await _scan(db, rows)).lines("scan", row_bytes)
    before = _size_of(folder)
    started = perf_counter()
    await Collector(store, ROOT, env, _OPTIONS).run_once()
    seconds = perf_counter() - started
    lines.append(BenchLine(name="collect", ours=seconds, unit="s", target="-"))
    lines.append(
        BenchLine(name="collected", ours=(before - _size_of(folder)) / 1e6, unit="MB", target="half of it all")
    )
    await store.aclose()
    return lines


async def _load(db: shale.Db, rows: int) -> Tenths:
    """Write rows with uniformly random keys."""
    tenths, rng = Tenths(rows), np.random.default_rng(15)
    values = pa.array([rng.bytes(VALUE_BYTES) for _ in range(BATCH_ROWS)], pa.binary())
    for done in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - done)
        digits = rng.bytes(8 * count).hex().encode()
        keys = [digits[KEY_BYTES * row : KEY_BYTES * (row + 1)] for row in range(count)]
        await db.write_arrow(pa.table({"key": pa.array(keys, pa.binary()), "value": values.slice(0, count)}))
        tenths.reach(done + count)
    return tenths


async def _compact(store: LocalStore, env: Env, folder: Path, total: int) -> Tenths:
    """Merge all L0s into one run; the size of the directory tells how far it is."""
    options = CompactorOptions(
        coordinator=CoordinatorOptions(
            scheduler=SizeTiered(min_compaction_sources=_NEVER, max_compaction_sources=_NEVER),
            poll_interval_s=_POLL_S,
            commit_compacted_interval_s=_POLL_S,
            checkpoint_lifetime_s=1.0,
        ),
        worker=WorkerOptions(compactions_poll_interval_s=_POLL_S),
    )
    compactor = Compactor(store, ROOT, env, options)
    await compactor.start()
    manifest = (await ManifestStore(store, ROOT, env).read_latest()).value
    everything = Sources(l0_view_ids=tuple(view.id for view in manifest.tree.l0))
    before = _size_of(folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        admin = CompactionAdmin(store, ROOT, env)
        (job,) = await admin.submit(everything)
        tenths = Tenths(total)
        tasks.start_soon(_watch, tenths, folder, before)
        assert (await admin.wait(job.id, poll_interval_s=_POLL_S)).error is None
        tenths.reach(max(total, _size_of(folder) - before))
        tasks.cancel_scope.cancel()
    return tenths


async def _watch(tenths: Tenths, folder: Path, before: int) -> None:
    while True:
        await anyio.sleep(_POLL_S)
        tenths.reach(_size_of(folder) - before)


async def _scan(db: shale.Db, rows: int) -> Tenths:
    tenths, done = Tenths(rows), 0
    scan = db.scan()
    while (columns := await scan.columns()) is not None:
        done += len(columns)
        tenths.reach(done)
    assert done == rows
    return tenths


def _size_of(folder: Path) -> int:
    """Return the bytes of all files; one that was renamed meanwhile counts with the next call."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size * path.is_file()
        except FileNotFoundError:
            continue
    return total
