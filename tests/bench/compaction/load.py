"""The input of compactions: four L0s of uniformly random keys, as SSTs and as rows for other engines."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.format.names import sst_key
from shale.kernels.rows import Rows
from shale.protocol.manifest_store import ManifestStore
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.store.port import ObjectStore
from shale.types import (
    Compaction,
    CompactionStatus,
    Manifest,
    RunId,
    Seq,
    Sst,
    SstView,
    TieredSpec,
    Tree,
)
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from tests.bench.rows import KEY_BYTES, bench_rows, random_numbers

SOURCES = 4
ROOT = "db"
_CHUNK_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Load:
    """``rows`` rows in all, each with a key of 16 bytes and ``value_bytes`` more."""

    rows: int
    value_bytes: int

    def __str__(self) -> str:
        return f"{self.rows // 1_000_000} M rows of {self.value_bytes} B"

    @property
    def raw_bytes(self) -> int:
        """Bytes of all keys and values."""
        return self.rows * (KEY_BYTES + self.value_bytes)

    def source(self, number: int) -> Iterator[Rows]:
        """The rows of one L0 in key order, chunk by chunk."""
        owner = np.random.default_rng(7).integers(0, SOURCES, self.rows, dtype=np.uint8)
        numbers = random_numbers(self.rows)[owner == number]
        for start in range(0, len(numbers), _CHUNK_ROWS):
            part = numbers[start : start + _CHUNK_ROWS]
            yield bench_rows(part, 1 + number * self.rows + start, number + start, self.value_bytes)


async def put_sst(store: ObjectStore, env: Env, chunks: Iterator[Rows]) -> Sst:
    """Store an SST of chunks of rows."""
    builder, sst_id = SstBuilder(SstOptions()), env.ids.ulid()
    infos = []

    async def parts() -> AsyncIterator[BytesLike]:
        for rows in chunks:
            builder.add(rows)
            for part in builder.take_parts():
                yield part
        rest, info = builder.finish()
        infos.append(info)
        for part in rest:
            yield part

    await store.put_stream(sst_key(ROOT, sst_id), parts())
    await asyncio.sleep(0.002)  # the time in the next id must be later
    return Sst(id=sst_id, info=infos[0])


async def write_manifest(store: ObjectStore, env: Env, tree: Tree, last_seq: int) -> None:
    """The first manifest of a database without snapshots."""
    manifest = Manifest(
        initialized=True,
        tree=tree,
        last_l0_seq=Seq(last_seq),
        recent_snapshot_min_seq=Seq(last_seq),
        last_l0_clock_tick=0,
    )
    await ManifestStore(store, ROOT, env).create_new(manifest)


async def write_load(directory: Path, load: Load) -> None:
    """A database of four L0s."""
    env = Env.system()
    store = connect(f"file://{directory}", env)
    views = [SstView.identity(await put_sst(store, env, load.source(number))) for number in range(SOURCES)]
    await write_manifest(store, env, Tree(l0=tuple(reversed(views))), SOURCES * load.rows)
    await store.aclose()


async def compact(directory: Path, options: ExecutorOptions) -> int:
    """Merge the L0s with the executor of the compactor; returns the bytes of all blocks."""
    env = Env.system()
    store = connect(f"file://{directory}", env)
    latest = await ManifestStore(store, ROOT, env).try_read_latest()
    assert latest is not None
    manifest = latest.value
    entry = Compaction(
        id=env.ids.ulid(),
        spec=TieredSpec(l0_view_ids=tuple(view.id for view in manifest.tree.l0), destination=RunId(0)),
        status=CompactionStatus.RUNNING,
    )
    progress = JobProgress(retention_min_seq=manifest.recent_snapshot_min_seq)
    outputs = await Executor(store, ROOT, env, options).run(plan_job(entry, manifest), progress)
    await store.aclose()
    return sum(sst.info.data_len for sst in outputs)


def ssts(directory: Path) -> set[Path]:
    """The files of all SSTs."""
    return set((directory / ROOT / "compacted").iterdir())
