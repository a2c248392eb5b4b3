"""Databases on the disk: 1 GB of 1 KiB values before and after a compaction, and scans of 3,000,000 rows to Arrow.

RocksDB has the same rows in as many files, LMDB in its tree; their scans give Python objects, for they know no Arrow.
SlateDB reads what Shale has compacted, and only the first rows: it would take minutes for all of them.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bench.cold.compaction import compared, copy_database
from tests.bench.cold.table import beside
from tests.bench.cold.work import COLD, WARM
from tests.bench.compaction.load import Load
from tests.bench.compaction.suite import child, prepared
from tests.bench.line import BenchLine
from tests.bench.place import Place
from tests.paths import REPOSITORY

OBJECTS = ">= 1x RocksDB, >= 0.8x LMDB"
ARROW = ">= 3x RocksDB, >= 1.3x LMDB"
MEMORY = "arrow_batches: little, whatever the size"


def large_lines(place: Place, rounds: int) -> Iterator[BenchLine]:
    """Return all lines."""
    with _databases(Load(1_000_000, 1024), place) as folder:
        name = "1 KiB values, disk: compaction of 4 x 250,000 rows"
        yield from compared(name, folder / "shale", folder / "rocksdict" / "rocks", Load(1_000_000, 1024), rounds)
        child("asked", folder / "shale")
        copy_database(folder / "shale", folder / "slatedb")
        child("rocks", "compact", folder / "rocksdict" / "rocks", 1_000_000, 1024)
        peers = dict.fromkeys(("slatedb", "rocksdict", "lmdb"), "objects")
        yield from _scan_lines("1 KiB values, disk: full scan after it", "objects", peers, OBJECTS, folder, rounds)
        del peers["slatedb"]
        yield from _scan_lines("1 KiB values, disk: the same to Arrow", "arrow", peers, ARROW, folder, rounds)
    with _databases(Load(3_000_000, 100), place) as folder:
        name = "3,000,000 rows, disk: scan to"
        for what, kind in (("Arrow", "arrow"), ("batches of Arrow", "batches")):
            yield from _scan_lines(f"{name} {what}", kind, peers, ARROW, folder, rounds)


@contextmanager
def _databases(load: Load, place: Place) -> Iterator[Path]:
    """A folder with a database of each engine, by its name."""
    with prepared(load, place.folder) as ours, tempfile.TemporaryDirectory(dir=place.folder) as name:
        folder = Path(name)
        copy_database(ours, folder / "shale")
        (folder / "rocksdict").mkdir()
        child("rocks", "prepare", folder / "rocksdict" / "rocks", load.rows, load.value_bytes)
        (folder / "lmdb").mkdir()
        _child("prepare", folder, load.rows, load.value_bytes)
        yield folder


def _scan_lines(
    name: str, ours: str, peers: Mapping[str, str], target: str, folder: Path, rounds: int
) -> Iterator[BenchLine]:
    """Scan with all engines in turn; return the rates, and the memory after the first scan of a process."""
    kinds = {"shale": ours, **peers}
    told: dict[str, list[dict[str, float]]] = {engine: [] for engine in kinds}
    for _ in range(rounds):
        for engine, kind in kinds.items():
            told[engine].append(_child(engine, folder / engine, kind))
    for phase in (COLD, WARM):
        rates = {engine: [each[phase] / 1000 for each in results] for engine, results in told.items()}
        yield from beside(f"{name}, {phase}", rates, target, "krows/s")
    resident = {engine: [each["resident_mb"] for each in results] for engine, results in told.items()}
    yield from beside(f"{name}, resident", resident, MEMORY, "MB")


def _child(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.cold.large_process", *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result
