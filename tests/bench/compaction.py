"""CPU and wall time of a compaction of four L0s with 1 M rows in all, on the directory store.

Ours runs through the executor of the compactor service; the reference is the core of SlateDB 0.17, compacting a copy
of the same database in a process of its own (``compaction_peer``).
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from shale.env import Env
from shale.format.names import sst_key
from shale.kernels.choice import load_kernels
from shale.protocol.manifest_store import ManifestStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.store.connect import connect
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
from tests.bench.line import BenchLine
from tests.bench.rows import bench_rows

SOURCES = 4
ROWS = 1_000_000
ROUNDS = 5
ROOT = "db"


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one compaction."""

    cpu_s: float
    wall_s: float


@contextmanager
def prepared() -> Iterator[Path]:
    """A directory with a database of four L0s whose keys interleave at random."""
    with tempfile.TemporaryDirectory(prefix="shale-bench-") as name:
        directory = Path(name)
        asyncio.run(_write(directory))
        yield directory


async def _write(directory: Path) -> None:
    env = Env.system()
    store = connect(f"file://{directory}", env)
    owner = np.random.default_rng(7).integers(0, SOURCES, ROWS)
    views = []
    for number in range(SOURCES):
        rows = bench_rows(np.flatnonzero(owner == number), 1 + number * ROWS, number)
        data, info = build_sst(rows, SstOptions())
        sst = Sst(id=env.ids.ulid(), info=info)
        await store.put(sst_key(ROOT, sst.id), data)
        views.append(SstView.identity(sst))
        await asyncio.sleep(0.002)  # the time in the next id must be later
    last_seq = Seq(SOURCES * ROWS)
    manifest = Manifest(
        tree=Tree(l0=tuple(reversed(views))),
        last_l0_seq=last_seq,
        recent_snapshot_min_seq=last_seq,
        last_l0_clock_tick=0,
    )
    await ManifestStore(store, ROOT, env).create_new(manifest)
    await store.aclose()


async def _compact(directory: Path) -> int:
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
    outputs = await Executor(store, ROOT, env, ExecutorOptions()).run(plan_job(entry, manifest), progress)
    await store.aclose()
    return sum(sst.info.data_len for sst in outputs)


def ours(directory: Path) -> Cost:
    """One compaction in this process; its outputs go, so that the next one meets the same disk."""
    compacted = directory / ROOT / "compacted"
    before = set(compacted.iterdir())
    cpu, wall = process_time(), perf_counter()
    assert asyncio.run(_compact(directory)) > ROWS * 116
    cost = Cost(process_time() - cpu, perf_counter() - wall)
    for path in set(compacted.iterdir()) - before:
        path.unlink()
    return cost


def peer(directory: Path) -> Cost:
    """One compaction by SlateDB, in a copy of the database."""
    with tempfile.TemporaryDirectory(prefix="shale-bench-peer-") as name:
        shutil.copytree(directory / ROOT, Path(name) / ROOT)
        command = [sys.executable, "-m", "tests.bench.compaction_peer", name, ROOT]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu_s, wall_s = map(float, answer.split())
    return Cost(cpu_s, wall_s)


def compaction_lines(rounds: int = ROUNDS) -> list[BenchLine]:
    """Medians of interleaved rounds."""
    load_kernels()
    with prepared() as directory:
        ours(directory)
        costs = [(ours(directory), peer(directory)) for _ in range(rounds)]
    mine, theirs = ([pair[side] for pair in costs] for side in (0, 1))
    return [
        BenchLine(
            name="compaction of 4 L0s, 1 M rows: CPU per row",
            ours=median(cost.cpu_s for cost in mine) / ROWS * 1e6,
            reference=median(cost.cpu_s for cost in theirs) / ROWS * 1e6,
            unit="us",
            target=">= 4x core (8x later)",
        ),
        BenchLine(
            name="compaction of 4 L0s, 1 M rows: wall",
            ours=median(cost.wall_s for cost in mine),
            reference=median(cost.wall_s for cost in theirs),
            unit="s",
            target=">= 4x core (8x later)",
        ),
    ]
