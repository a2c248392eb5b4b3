"""A database of any size is collected in bounded memory: the listings are generated as they are read.

The store stands for one with 100,000 manifests and 1,000,000 SSTs.  What it holds itself does not grow, so what is
measured is the collector.
"""

import gc
import resource
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

from shale.env import Env
from shale.errors import ShaleError
from shale.format.compactions import encode_compactions
from shale.format.manifest import encode_manifest
from shale.format.names import compactions_key, manifest_key, sst_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.store.memory import MemoryStore
from shale.store.port import LIST_PAGE, ObjectMeta
from shale.types import (
    Checkpoint,
    Compaction,
    Compactions,
    CompactionStatus,
    Manifest,
    ManifestId,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
)

ROOT = "db"
BOUND_BYTES = 24 * 1024 * 1024
START_MS = 1_700_000_000_000
USED_EVERY = 500


@dataclass(frozen=True)
class Size:
    manifests: int
    ssts: int


class VastStore(MemoryStore):
    """Lists manifests and SSTs that were never written, and counts what is deleted."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.deleted = 0
        self.requests = 0

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        if prefix == f"{ROOT}/manifest/":
            keys = (manifest_key(ROOT, number) for number in range(1, self.size.manifests + 1))
        elif prefix == f"{ROOT}/compacted/":
            keys = (sst_key(ROOT, sst_id(number)) for number in range(self.size.ssts))
        else:
            async for page in super().list_pages(prefix, after=after):
                yield page
            return
        while page := [ObjectMeta(key, 1000, START_MS) for key in islice(keys, LIST_PAGE)]:
            await anyio.lowlevel.checkpoint()
            yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        self.deleted += len(keys)
        self.requests += 1
        return {}


def resident_peak_bytes() -> int:
    """Return the peak memory of this process; tracing every allocation would take ten times as long."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sst_id(number: int) -> Ulid:
    return Ulid.from_parts(START_MS + number, number * 7919 % 2**80)


def tree(first: int, size: Size) -> Tree:
    """Return a run of every n-th SST, beginning with ``first``."""
    info = SstInfo(first_entry=b"a", last_entry=b"z", index_offset=10, index_len=10)
    views = tuple(SstView.identity(Sst(id=sst_id(number), info=info)) for number in range(first, size.ssts, USED_EVERY))
    newest = SstView.identity(Sst(id=sst_id(size.ssts - 1), info=info))
    return Tree(l0=(newest,), compacted=(SortedRun(id=RunId(0), ssts=views),))


async def vast(size: Size) -> VastStore:
    """Return the newest manifest, and some that checkpoints pin; each of them references different SSTs."""
    store = VastStore(size)
    pinned = [ManifestId(number * size.manifests // 10) for number in range(1, 9)]
    checkpoints = tuple(Checkpoint(id=UUID(int=number + 1), manifest_id=id_) for number, id_ in enumerate(pinned))
    for number, id_ in enumerate(pinned):
        await store.put(manifest_key(ROOT, id_), encode_manifest(Manifest(tree=tree(number + 1, size))))
    latest = Manifest(tree=tree(0, size), checkpoints=checkpoints)
    await store.put(manifest_key(ROOT, size.manifests), encode_manifest(latest))
    job = Compaction(id=sst_id(size.ssts), spec=TieredSpec(destination=RunId(0)), status=CompactionStatus.COMPLETED)
    await store.put(compactions_key(ROOT, 1), encode_compactions(Compactions(entries=(job,))))
    return store


@pytest.mark.slow
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(2_000, 20_000), id="small"),
        pytest.param(Size(100_000, 1_000_000), id="vast", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_memory_is_bounded(size: Size) -> None:
    async def scenario() -> tuple[VastStore, Collector, int]:
        store = await vast(size)
        task = TaskOptions(min_age_s=0)
        env = Env.system()
        collector = Collector(store, ROOT, env, GcOptions(manifest=task, compacted=task, wal=None, compactions=None))
        gc.collect()
        before = resident_peak_bytes()
        await collector.run_once()
        return store, collector, resident_peak_bytes() - before

    started = time.monotonic()
    store, collector, peak = anyio.run(scenario)
    kept = sum(len(range(first, size.ssts, USED_EVERY)) for first in range(9))
    print(f"peak {peak / 2**20:.1f} MiB, {time.monotonic() - started:.1f} s, {store.requests} requests to delete")
    done = {task: state.progress for task, state in collector.states.items()}
    assert done[Task.MANIFEST].deleted == size.manifests - 9
    assert size.ssts - kept - 1 <= done[Task.COMPACTED].deleted <= size.ssts - kept
    assert store.deleted == done[Task.MANIFEST].deleted + done[Task.COMPACTED].deleted
    assert store.requests < store.deleted / 100
    assert peak < BOUND_BYTES, "resident memory grew"
