"""What a process does first: every line is measured in fresh processes, beside the three peers.

Keys are uniformly random, and the key ranges of the L0s overlap completely.  Each line is the median of rounds in
which the engines take turns.  A process does its work up to three times: *cold* is the first time, *warm* the same
after the database was opened again, so that no block is in memory, and *hot* once more on the same open database.
Databases are in memory (tmpfs), so that no line measures a disk; those of the large lines are on the disk.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime

from tests.bench.cold.compaction import compaction_lines
from tests.bench.cold.large import large_lines
from tests.bench.cold.table import beside
from tests.bench.cold.work import ENGINES, LINES
from tests.bench.line import BenchLine
from tests.bench.place import Place
from tests.paths import REPOSITORY

ROUNDS = 5


def cold_lines(*, large: bool = False) -> Iterator[BenchLine | str]:
    """Return a line for each kind of work, time of it and peer; ``large``: of the databases on disk, too."""
    place = Place.memory()
    yield f"the databases are on {place}"
    yield from _process_lines(place)
    yield from compaction_lines(place, ROUNDS)
    if large:
        disk = Place.disk()
        yield f"the large databases are on {disk}"
        yield from large_lines(disk, ROUNDS)


def _process_lines(place: Place) -> Iterator[BenchLine]:
    times: dict[tuple[str, str], list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="shale-bench-cold-", dir=place.folder) as folder:
        for name in ENGINES:
            Path(folder, name).mkdir()
            Path(folder, f"{name}-log").mkdir()
            _run(name, folder, "fill")
            _run(name, folder, "log")
        _run("shale", folder, "parts")
        for _ in range(ROUNDS):
            for name, work in LINES.items():
                for engine in ENGINES:
                    if engine not in work.without:
                        times.setdefault((name, engine), []).append(_run(engine, folder, name))
    for name, work in LINES.items():
        for number, phase in enumerate(work.phases):
            values = {
                engine: [result[number] for result in times[name, engine]]
                for engine in ENGINES
                if engine not in work.without
            }
            yield from beside(f"{name}, {phase}", values, work.target, "MB" if name.startswith("memory") else "ms")


def _run(engine: str, folder: str, work: str) -> list[float]:
    started = clock_gettime(MONOTONIC)
    command = [sys.executable, "-m", "tests.bench.cold.process", engine, folder, work, str(started)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    result: list[float] = json.loads(done.stdout)
    return result
