"""One compaction of 4 x 250,000 rows, asked for, done and seen; the peers have no second one in a process."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.cold.table import beside
from tests.bench.cold.work import COLD, WARM
from tests.bench.compaction.load import ROOT, Load
from tests.bench.compaction.suite import child, prepared, rocks, wheel
from tests.bench.line import BenchLine
from tests.bench.place import Place

TARGET = ">= 8x wheel, >= 1.5x RocksDB"
_LINKED_BYTES_MIN = 1 << 20


def compaction_lines(place: Place, rounds: int) -> Iterator[BenchLine]:
    """Return the lines of 100-byte values."""
    load = Load(rows=1_000_000, value_bytes=100)
    with prepared(load, place.folder) as source, tempfile.TemporaryDirectory(dir=place.folder) as template:
        child("rocks", "prepare", template, load.rows, load.value_bytes)
        yield from compared("compaction of 4 x 250,000 rows", source, Path(template), load, rounds)


def compared(name: str, source: Path, template: Path, load: Load, rounds: int) -> Iterator[BenchLine]:
    """Compact a database and RocksDB's in turn; return our first and second time in a process beside theirs."""
    values: dict[str, dict[str, list[float]]] = {phase: {"shale": []} for phase in (COLD, WARM)}
    slatedb, rocksdict = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=source.parent) as copies:
            paths = [copy_database(source, Path(copies, phase)) for phase in values]
            for phase, seconds in zip(values, child("asked", *paths), strict=True):
                values[phase]["shale"].append(seconds * 1000)
        slatedb.append(wheel(source).wall_s * 1000)
        rocksdict.append(rocks(template, load).wall_s * 1000)
    for phase, ours in values.items():
        yield from beside(f"{name}, {phase}", {**ours, "slatedb": slatedb, "rocksdict": rocksdict}, TARGET, "ms")


def copy_database(source: Path, target: Path) -> Path:
    """Copy a database to another directory of its file system; large files, which never change, are linked."""
    shutil.copytree(source / ROOT, target / ROOT, copy_function=_link_large)
    return target


def _link_large(source: str, target: str) -> None:
    if Path(source).stat().st_size >= _LINKED_BYTES_MIN:
        os.link(source, target)
    else:
        shutil.copy2(source, target)
