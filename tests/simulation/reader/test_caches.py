"""Reads are correct with tiny caches and a disk that loses and damages cached parts.

Two readers and a writer of one database share a memory budget of a few blocks and a directory of a few parts, while
compaction and garbage collection remove SSTs that are cached. Another process truncates, damages and deletes files of
the directory. Eviction there follows real time, so a seed does not replay request by request.
"""

import os
import tempfile
from pathlib import Path
from random import Random

import anyio
import pytest

from shale.errors import InvalidClockTick, ShaleError
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from tests.simulation.compactor.lsm import compactor
from tests.simulation.conftest import simulated_slowly
from tests.simulation.reader.reader_processes import open_reader
from tests.simulation.row_model import RowModel
from tests.simulation.whole_system import EXPECTED, collector
from tests.simulation.writer.writers import PAIR, final_rows, writer

BUDGET_BYTES = 12_000
DISK = {"max_bytes": 40 * (64 << 10), "part_bytes": 64 << 10}


async def reader(process: SimProcess, cache: MemoryBudget, disk: DiskCacheOptions, seen: list[int]) -> None:
    """Scan, look up, warm and evict; the rows of a batch are always visible together."""
    rng = process.rng
    while True:
        try:
            async with open_reader(
                process,
                manifest_poll_interval="5s",
                checkpoint_lifetime="120s",
                cache=cache,
                disk_cache=disk,
            ) as db:
                while True:
                    match rng.randrange(4):
                        case 0:
                            rows = {row.key: row.value async for row in db.scan()}
                            assert rows.get(PAIR[0]) == rows.get(PAIR[1]), "half a batch"
                            seen.append(len(rows))
                        case 1:
                            one, other = await db.get_many(PAIR)
                            assert one == other, "half a batch"
                        case 2:
                            await db.cache.warm(start=b"key-%d" % rng.randrange(12))
                        case 3:
                            await db.cache.evict(stop=b"key-%d" % rng.randrange(12), disk=rng.random() < 0.5)
                    await anyio.sleep(rng.uniform(0, 20))
        except ShaleError:
            await anyio.sleep(20)  # no database yet, or a lease that is lost


async def spoiler(process: SimProcess, directory: Path) -> None:
    """Delete and damage files of the cache between any two steps."""
    rng = process.rng
    while True:
        await anyio.sleep(rng.uniform(1, 40))
        for path in _files(directory):
            if rng.random() < 0.3:
                _spoil(path, rng)


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _spoil(path: Path, rng: Random) -> None:
    size = path.stat().st_size
    match rng.randrange(3):
        case 0:
            path.unlink()
        case 1:
            os.truncate(path, rng.randrange(size + 1))
        case 2 if size:
            data = bytearray(path.read_bytes())
            data[rng.randrange(size)] ^= 1 << rng.randrange(8)
            path.write_bytes(data)


@pytest.mark.slow
@simulated_slowly
def test_reads_are_right_whatever_caches_lose(seed: int) -> None:
    model, seen = RowModel(), list[int]()
    with tempfile.TemporaryDirectory() as directory, Simulation(seed, swarm=True) as sim:
        cache, disk = MemoryBudget(BUDGET_BYTES), DiskCacheOptions(directory, **DISK)
        small = {"cache": cache, "disk_cache": disk, "block_size_bytes": 256, "min_filter_keys": 2}
        sim.watch(DatabaseInvariants("db"))
        sim.restart_killed(30.0)
        sim.start(writer, "w", role="writer", model=model, rounds=60, pause_s=15.0, **small)
        sim.at(20.0, lambda: sim.start(compactor, "c", role="compactor"))
        sim.at(30.0, lambda: sim.start(collector, "gc", role="gc", min_age_s=300.0))
        for name in ("r1", "r2"):
            sim.at(40.0, lambda name=name: sim.start(reader, name, role="reader", cache=cache, disk=disk, seen=seen))
        sim.start(spoiler, "disk", role="disk", directory=Path(directory))
        sim.run(minutes=20)
        sim.heal()
        sim.run(minutes=5)
        sim.kill_all()
        model.check(final_rows(sim))
        sim.check_errors(*EXPECTED, *((InvalidClockTick,) if sim.options.skew_ms else ()))
        assert cache.used_bytes <= 2 * BUDGET_BYTES, "metadata that a killed reader held may still be there"
        assert seen
