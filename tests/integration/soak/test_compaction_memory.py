"""The memory of a job does not depend on its size: 64 MB and 8 MB for each source."""

import asyncio
import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from shale import CompactionFilter, Decisions, FilterContext, RowBatch
from shale.compaction.filters import NamedCompactionFilter
from shale.env import Env, InlineCpu, SystemClock
from shale.format.names import sst_key
from shale.kernels.rows import Rows
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.store.local_store.adapter import LocalStore
from shale.types import FLAG_MERGE, Manifest, RunId, Seq, Sst, SstView, TieredSpec, Tree
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms
from tests.unit.compactor.values import entry, ulid

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
MIB = 1024 * 1024


class EverySecond(CompactionFilter):
    def __init__(self, context: FilterContext) -> None:
        pass

    def filter(self, batch: RowBatch) -> Decisions:
        return Decisions(delete=batch.seq % np.uint64(2) == 0)


def newest(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return operands[-1]


@dataclass(frozen=True)
class Load:
    """``sources`` SSTs of ``rows`` rows with values of ``value_bytes``; on one key if ``has_one_key``."""

    sources: int
    rows: int
    value_bytes: int = 100
    flags: int = 0
    has_one_key: bool = False
    min_seq: int = 2**40
    transforms: Transforms = NO_TRANSFORMS


FILTERS = Transforms(filters=(NamedCompactionFilter("every-second", EverySecond),))
LOADS = {
    "filters": Load(4, 300_000, transforms=FILTERS),
    "single operands": Load(4, 300_000, flags=FLAG_MERGE, transforms=Transforms(operator=newest)),
    "a long chain of operands": Load(2, 60_000, 1000, FLAG_MERGE, True, transforms=Transforms(operator=newest)),
    "many versions of one key": Load(2, 60_000, 1000, 0, True, 0),
    "many versions of one key, filtered": Load(2, 60_000, 1000, 0, True, 0, FILTERS),
    "many sources": Load(120, 8_000),
    "many sources, filtered": Load(120, 8_000, transforms=FILTERS),
}


def rows_of(load: Load, source: int) -> Rows:
    numbers = np.zeros(load.rows, np.int64) if load.has_one_key else np.arange(load.rows) * load.sources + source
    seq = np.arange(load.rows, dtype=np.uint64) + np.uint64(source * load.rows + 1)
    return Rows(
        key_bytes=np.frombuffer(b"".join(b"%016d" % number for number in numbers), np.uint8),
        key_offsets=np.arange(load.rows + 1) * 16,
        val_bytes=np.random.default_rng(source).integers(0, 256, load.rows * load.value_bytes, dtype=np.uint8),
        val_offsets=np.arange(load.rows + 1) * load.value_bytes,
        seq=seq[::-1].copy() if load.has_one_key else seq,
        flags=np.full(load.rows, load.flags, np.uint8),
        create_ts=np.zeros(load.rows, np.int64),
        expire_ts=np.zeros(load.rows, np.int64),
    )


async def job_over(store: LocalStore, load: Load) -> Job:
    views = []
    for source in range(load.sources):
        data, info = build_sst(rows_of(load, source), SstOptions())
        sst = Sst(id=ulid(100 + source), info=info)
        await store.put(sst_key("db", sst.id), data)
        views.append(SstView.identity(sst))
    spec = TieredSpec(l0_view_ids=tuple(view.id for view in views), destination=RunId(1))
    return plan_job(entry(5000, spec), Manifest(tree=Tree(l0=tuple(views))))


@pytest.mark.parametrize("name", LOADS)
def test_memory_is_bounded(tmp_path: Path, name: str) -> None:
    load = LOADS[name]

    async def peak_bytes() -> int:
        store = LocalStore(str(tmp_path), fsync=False)
        job = await job_over(store, load)
        env = Env(SystemClock(), random.Random(1), InlineCpu())
        executor = Executor(store, "db", env, ExecutorOptions(), transforms=load.transforms)
        tracemalloc.start(1)
        try:
            await executor.run(job, JobProgress(retention_min_seq=Seq(load.min_seq)))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(peak_bytes()) < (64 + 8 * load.sources) * MIB
