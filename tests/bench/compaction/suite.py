"""CPU, wall time, memory and requests of compactions of four L0s, on the directory store.

Ours runs through the executor of the compactor service.  The references compact the same rows in processes of their
own: the core of SlateDB 0.17 (``wheel``) in a copy of the same database, RocksDB (``rocks``) in
one with four L0 files.  Rounds are interleaved, and every output is deleted before the next.
"""

import asyncio
import os
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

from shale.service.runtime_tuning import reuse_large_buffers, share_one_arena
from shale_compactor.execution.options import ExecutorOptions
from tests.bench.compaction.load import ROOT, SOURCES, Load, compact, ssts, write_load
from tests.bench.compaction.state import state_write_lines
from tests.bench.line import BenchLine

ROUNDS = {Load(1_000_000, 100): 5, Load(1_000_000, 1024): 5, Load(10_000_000, 100): 3}
LARGE = {Load(10_000_000, 1024): 1}
"""10 GB of rows: 20 minutes, and 42 GB of disk at the most."""
WARM_UP = Load(100_000, 100)
_MIB = 1 << 20
_STEP = 4 * _MIB


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one compaction."""

    cpu_s: float
    wall_s: float


@contextmanager
def prepared(load: Load, place: str | None = None) -> Iterator[Path]:
    """A directory with the database, in the place for temporary files or another one, which goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="shale-bench-", dir=place) as name:
        directory = Path(name)
        asyncio.run(write_load(directory, load))
        yield directory


def child(module: str, *arguments: object) -> list[float]:
    """Return the output of a separate process."""
    command = [sys.executable, "-m", f"tests.bench.compaction.{module}", *map(str, arguments)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in answer.split()]


def ours(directory: Path, load: Load) -> Cost:
    """Measure one compaction in this process; its outputs are deleted, so that the next one has the same disk."""
    before = ssts(directory)
    cpu, wall = process_time(), perf_counter()
    assert asyncio.run(compact(directory, ExecutorOptions())) > load.raw_bytes
    cost = Cost(process_time() - cpu, perf_counter() - wall)
    for path in ssts(directory) - before:
        path.unlink()
    return cost


def wheel(directory: Path) -> Cost:
    """One compaction by SlateDB, in a copy next to the database."""
    with tempfile.TemporaryDirectory(prefix="shale-bench-wheel-", dir=directory.parent) as name:
        shutil.copytree(directory / ROOT, Path(name) / ROOT)
        return Cost(*child("wheel", name, ROOT))


def rocks(template: Path, load: Load) -> Cost:
    """One compaction by RocksDB, in a copy next to the database; files that never change are linked."""
    with tempfile.TemporaryDirectory(prefix="shale-bench-rocks-", dir=template.parent) as name:
        directory = Path(name) / "db"
        shutil.copytree(template, directory, copy_function=_link_tables)
        return Cost(*child("rocks", "compact", directory, load.rows, load.value_bytes))


def _link_tables(source: str, target: str) -> None:
    if source.endswith(".sst"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def io_floor(directory: Path) -> float:
    """Seconds of reading all inputs and of writing as much again in plain files, synced as the store does."""
    start = perf_counter()
    buffer = memoryview(bytearray(_STEP))
    target = directory / "floor"
    for source in sorted(ssts(directory)):
        with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
            while size := reading.readinto(buffer):
                writing.write(buffer[:size])
            os.fsync(writing.fileno())
    seconds = perf_counter() - start
    target.unlink()
    return seconds


def memory_growth(directory: Path) -> float:
    """MiB by which a fresh process grows over the compaction."""
    with prepared(WARM_UP) as warm_up:
        return child("memory", directory, warm_up)[0] / _MIB


def load_lines(load: Load, rounds: int) -> Iterator[BenchLine]:
    """Everything about one load."""
    with prepared(load) as directory, tempfile.TemporaryDirectory(prefix="shale-bench-rocks-") as template:
        child("rocks", "prepare", template, load.rows, load.value_bytes)
        ours(directory, load)
        costs = [
            (ours(directory, load), wheel(directory), rocks(Path(template), load), io_floor(directory))
            for _ in range(rounds)
        ]
        growth = memory_growth(directory) if 10**9 <= load.raw_bytes < 10**10 else None
    mine, core, rocksdb = ([costs_of_all[side] for costs_of_all in costs] for side in range(3))
    floor = median(costs_of_all[3] for costs_of_all in costs)
    yield from _against(load, mine, "core", core, ">= 8x core (moonshot 12x)")
    yield from _against(load, mine, "RocksDB", rocksdb, ">= 1.5x RocksDB (moonshot 2x)")
    wall_s = median(cost.wall_s for cost in mine)
    yield BenchLine(
        name=f"compaction, {load}: wall | I/O floor", ours=wall_s, reference=floor, unit="s", target="<= 3x"
    )
    yield BenchLine(name=f"compaction, {load}: rate", ours=load.raw_bytes / wall_s / 1e6, unit="MB/s", target="-")
    if growth is not None:
        limit = 64 + 8 * SOURCES
        name = f"compaction, {load}: memory"
        yield BenchLine(name=name, ours=growth, unit="MiB", target=f"<= {limit} MiB, whatever the size")


def _against(load: Load, mine: list[Cost], peer: str, theirs: list[Cost], target: str) -> Iterator[BenchLine]:
    yield BenchLine(
        name=f"compaction, {load}: CPU per row | {peer}",
        ours=median(cost.cpu_s for cost in mine) / load.rows * 1e6,
        reference=median(cost.cpu_s for cost in theirs) / load.rows * 1e6,
        unit="us",
        target=target,
    )
    yield BenchLine(
        name=f"compaction, {load}: wall | {peer}",
        ours=median(cost.wall_s for cost in mine),
        reference=median(cost.wall_s for cost in theirs),
        unit="s",
        target=target,
    )


def compaction_lines(*, large: bool = False) -> Iterator[BenchLine]:
    """Medians of interleaved rounds, load by load."""
    share_one_arena()  # as every daemon does, and so is the next
    reuse_large_buffers()
    yield from state_write_lines()
    for load, rounds in {**ROUNDS, **(LARGE if large else {})}.items():
        yield from load_lines(load, rounds)
