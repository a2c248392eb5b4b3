"""Cost beside the size of the database: simulated databases of 1 GB to 1 TB, each part in a process of its own.

SSTs of 64 MiB in 40 runs and 100 L0s, or in 1,000 segments; smaller databases have fewer of each.  Requests cost
nothing, so that what remains is our own work.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import log
from pathlib import Path

from shale.format.manifest import encode_manifest
from tests.bench.line import BenchLine
from tests.bench.scale.content import section_sizes
from tests.bench.scale.database import ScaleShape, manifest_of
from tests.bench.scale.measure import PARTS
from tests.bench.scale.plot import Series, write_plot
from tests.paths import REPOSITORY

SIZES = (16, 160, 1_600, 16_000)
SEGMENTS = (0, 1_000)
PLOT = Path("scale.svg")
_LARGEST_MS, _LARGEST_REQUESTS, _LARGEST_MB = "<= 1,500 ms", "<= 25", "<= 200 MB"
TARGETS = {"manifest update, cpu": "<= 50 ms"}
TARGETS |= {f"open {who}, wall": _LARGEST_MS for who in ("writer", "reader")}
TARGETS |= {f"open {who}, requests": _LARGEST_REQUESTS for who in ("writer", "reader")}
TARGETS |= {f"resident after {what}, MB": _LARGEST_MB for what in ("open", "a get", "a scan")}
_UNITS = {"requests": "requests", "bytes": "B", "MB": "MB"}
_NOISE_MS = 2.0

Numbers = dict[str, float]


def scale_lines() -> Iterator[BenchLine]:
    """Yield a line for each measure and size, then the growth of CPU time from the second largest to the largest."""
    for segments in SEGMENTS:
        found: dict[ScaleShape, Numbers] = {}
        for size in SIZES:
            shape = ScaleShape(size, segments)
            found[shape] = _measured(shape)
            for name, number in found[shape].items():
                yield _line(name, number, shape)
        yield from _growth(found)
        if not segments:
            write_plot(PLOT, _series(found))


def _measured(shape: ScaleShape) -> Numbers:
    numbers: Numbers = {}
    with tempfile.NamedTemporaryFile() as file:
        file.write(encode_manifest(manifest_of(shape, section_sizes())))
        file.flush()
        for part in PARTS:
            prefix = "reader's " if part == "reader" else ""
            for name, number in _run(part, shape, file.name).items():
                numbers[name if name.startswith("open") else prefix + name] = number
    return numbers


def _run(part: str, shape: ScaleShape, manifest: str) -> Numbers:
    command = [sys.executable, "-m", "tests.bench.scale.measure", part, str(shape.ssts), str(shape.segments), manifest]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    numbers: Numbers = json.loads(done.stdout)
    return numbers


def _line(name: str, number: float, shape: ScaleShape) -> BenchLine:
    unit = _UNITS.get(name.rpartition(", ")[2], "ms")
    target = TARGETS.get(name, "-") if shape.ssts == SIZES[-1] else "-"
    return BenchLine(name=f"{name} | {shape.label}", ours=number, unit=unit, target=target)


def _growth(found: dict[ScaleShape, Numbers]) -> Iterator[BenchLine]:
    """Yield how much more CPU time the largest database takes than the one before, per ``n log n``."""
    small, large = list(found)[-2:]
    allowed = _work(large) / _work(small)
    for name, number in found[large].items():
        before = found[small].get(name, 0.0)
        if name.endswith("cpu") and before > _NOISE_MS:
            grown = number / before / allowed
            yield BenchLine(name=f"growth of {name[:-5]} | {large.label}", ours=grown, unit="x n log n", target="<= 1")


def _work(shape: ScaleShape) -> float:
    ssts = shape.ssts + shape.l0_count
    return ssts * log(ssts)


def _series(found: dict[ScaleShape, Numbers]) -> list[Series]:
    names = [name for name in next(iter(found.values())) if name.endswith("cpu")]
    return [
        Series(name.removesuffix(", cpu"), [(shape.ssts + shape.l0_count, each[name]) for shape, each in found.items()])
        for name in names
    ]
