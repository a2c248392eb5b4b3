"""What it costs to publish progress after every output SST: requests of a whole compactor on the directory store.

The measure is the cost table of the seed (compaction-state-persistence): input and output SSTs count once each, and
two writes of the manifest; one write of the state for each output SST is half as much again.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import Full
from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.store.local_store.adapter import LocalStore
from shale.store.port import ETag
from shale.types import RunId, SortedRun, SstView, Tree
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.bench.compaction.load import ROOT, put_sst, write_manifest
from tests.bench.line import BenchLine
from tests.bench.rows import bench_rows

RUNS = 2
SSTS_PER_RUN = 20
ROWS_PER_SST = 20_000
_POLL_S = 0.05


class WriteCountingStore(LocalStore):
    """Counts writes by the kind of object."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, fsync=False)
        self.writes: Counter[str] = Counter()

    async def put(self, key: str, *arguments: Any, **options: Any) -> ETag | None:
        """See ``ObjectStore``."""
        self.writes[Path(key).suffix] += 1
        return await super().put(key, *arguments, **options)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        self.writes[Path(key).suffix] += 1
        await super().put_stream(key, parts)


@dataclass(frozen=True, slots=True)
class Writes:
    """Of one full compaction, from its submission to its end."""

    state: int
    ssts: int


async def _write_runs(store: LocalStore, env: Env) -> int:
    """Runs over the same keys, so that every SST has to be merged; returns the bytes of the smallest one's blocks."""
    runs = []
    for run in reversed(range(RUNS)):
        views = []
        for number in range(SSTS_PER_RUN):
            first = number * ROWS_PER_SST
            numbers = RUNS * np.arange(first, first + ROWS_PER_SST) + run
            sst = await put_sst(store, env, iter([bench_rows(numbers, 1 + first)]))
            views.append(SstView.identity(sst))
        runs.append(SortedRun(id=RunId(run), ssts=tuple(views)))
    await write_manifest(store, env, Tree(compacted=tuple(runs)), RUNS * SSTS_PER_RUN * ROWS_PER_SST)
    return min(view.sst.info.data_len for run in runs for view in run.ssts)


def _options(*, persist_every_sst: bool, sst_bytes: int) -> CompactorOptions:
    return CompactorOptions(
        coordinator=CoordinatorOptions(poll_interval_s=_POLL_S, commit_compacted_interval_s=_POLL_S),
        worker=WorkerOptions(
            compactions_poll_interval_s=_POLL_S, persist_every_sst=persist_every_sst, persist_interval_s=0.0
        ),
        executor=ExecutorOptions(max_sst_size_bytes=sst_bytes),
    )


async def measure(*, persist_every_sst: bool) -> Writes:
    """Compact both runs into one of as many SSTs as they have together."""
    env = Env.system()
    with tempfile.TemporaryDirectory(prefix="shale-bench-state-") as name:
        store = WriteCountingStore(Path(name))
        sst_bytes = await _write_runs(store, env)
        options = _options(persist_every_sst=persist_every_sst, sst_bytes=sst_bytes)
        compactor = Compactor(store, ROOT, env, options)
        await compactor.start()
        admin = CompactionAdmin(store, ROOT, env)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compactor.run)
            store.writes.clear()
            (job,) = await admin.submit(Full())
            assert (await admin.wait(job.id, poll_interval_s=_POLL_S)).error is None
            writes = Writes(state=store.writes[".compactions"], ssts=store.writes[".sst"])
            tasks.cancel_scope.cancel()
        await store.aclose()
    return writes


def state_write_lines() -> Iterator[BenchLine]:
    """Writes of the state beyond those that a compaction makes anyway."""
    without = asyncio.run(measure(persist_every_sst=False))
    persisted = asyncio.run(measure(persist_every_sst=True))
    more = persisted.state - without.state
    operations = RUNS * SSTS_PER_RUN + without.ssts + 2
    yield BenchLine(
        name="compaction state: writes per output SST",
        ours=more / persisted.ssts,
        unit="",
        target="1 (-10 % to +10 %; fewer where SSTs end together)",
    )
    yield BenchLine(
        name="compaction state: more operations",
        ours=100 * more / operations,
        unit="%",
        target="+49 to +50 % by the seed's table",
    )
