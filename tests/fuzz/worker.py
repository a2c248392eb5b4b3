"""Runs one target in this process, and leaves the input that is running where a supervisor finds it.

The supervisor ends this process if an input takes too long; a crash ends it, too.  Everything else that an input may
do wrong is recorded here, and the work goes on.
"""

import json
import random
import resource
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

from tests.fuzz.line_coverage import LineCoverage
from tests.fuzz.mutation import SIZE_MAX
from tests.fuzz.target import Difference, Target

MEMORY_MAX = 512 << 20
_ADDRESS_SPACE_MAX = 4 << 30
"""Beyond what is in use at the start: an input that asks for more gets a ``MemoryError``."""
_HEAD = struct.Struct("<QQ")
BOX_BYTES = _HEAD.size + 2 * SIZE_MAX
_CORPUS_MAX = 400
_REPORT_S = 1.0
MEMORY_FINDING = "memory"
ROOT = str(Path(__file__).parents[2])


class Box:
    """Shared memory with the number of runs and the running input."""

    def __init__(self, memory: mmap) -> None:
        self._memory = memory

    def put(self, number: int, data: bytes) -> None:
        """Leave an input, before it runs."""
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, number, len(data))

    def take(self) -> tuple[int, bytes]:
        """Return the last number and input."""
        number, size = _HEAD.unpack_from(self._memory)
        return number, bytes(self._memory[_HEAD.size : _HEAD.size + size])


def outcome(target: Target, data: bytes) -> str | None:
    """Run an input; return what is wrong, in a form that is equal for equal causes, or ``None``."""
    try:
        target.run(data)
    except target.expected:
        return None
    except Difference as error:
        return f"Difference: {str(error).partition(':')[0][:100]}"
    except MemoryError:
        return MEMORY_FINDING
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__} at {_place_of(error)}"
    return None


def _place_of(error: BaseException) -> str:
    """Return where in this repository the error was raised, or passed last."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(ROOT) and "/tests/" not in frame.filename]
    last = (ours or list(frames))[-1:]
    return ", ".join(f"{frame.filename.removeprefix(ROOT + '/')}:{frame.name}" for frame in last) or "no place"


class Work:
    """One target's search in this process."""

    def __init__(self, target: Target, seed: int, folder: Path, box: Box, *, skip: int = 0) -> None:
        """``skip``: of the seeds and what was kept, how many an earlier process has run."""
        self._skip = skip
        self._target = target
        self._seed = seed
        self._folder = folder
        self._box = box
        self._corpus = [*target.seeds(), *_stored(folder / "corpus")]
        self._coverage = LineCoverage(target.modules)
        self._executions = 0
        self._findings: set[str] = set()
        self._memory_start = _peak_memory()

    def run(self, *, until_s: float, executions_max: int | None) -> None:
        """Run inputs until the time or the number is reached; the first ones are the seeds."""
        _limit_memory()
        next_report = time.monotonic() + _REPORT_S
        for data in self._inputs():
            self._one(data)
            now = time.monotonic()
            if now >= next_report:
                self.report()
                next_report = now + _REPORT_S
            if now >= until_s or self._executions == executions_max:
                break
        self.report()

    def _inputs(self) -> Iterator[bytes]:
        yield from self._corpus[self._skip :]
        for number in range(1 << 62):
            rng = random.Random(f"{self._seed}/{self._target.name}/{number}")
            data = rng.choice(self._corpus)
            yield self._target.change(rng, data)[:SIZE_MAX]

    def _one(self, data: bytes) -> None:
        self._executions += 1
        self._box.put(self._executions, data)
        found: list[str | None] = []
        if self._coverage.watch(lambda: found.append(outcome(self._target, data))) and self._executions > 1:
            self._keep(data)
        what = found[0]
        if what is None and _peak_memory() - self._memory_start > MEMORY_MAX:
            what = MEMORY_FINDING
        if what is not None and what not in self._findings:
            self._findings.add(what)
            record(self._folder, what, data)
        if what == MEMORY_FINDING:
            self.report()
            sys.exit(0)  # the peak stays, so a new process goes on

    def _keep(self, data: bytes) -> None:
        if len(self._corpus) < _CORPUS_MAX:
            self._corpus.append(data)
            name = f"{len(self._corpus):05}"
            (self._folder / "corpus").mkdir(exist_ok=True)
            (self._folder / "corpus" / name).write_bytes(data)

    def report(self) -> None:
        """Write what was done so far."""
        hit = {module: sorted(self._coverage.hit[file]) for file, module in self._coverage.files.items()}
        name = f"progress-{self._seed}.json"
        text = json.dumps({"executions": self._executions, "hit": hit})
        (self._folder / name).write_text(text)


def record(folder: Path, what: str, data: bytes, traceback: str = "") -> None:
    """Keep one input of a cause."""
    (folder / "findings").mkdir(exist_ok=True)
    number = len(list((folder / "findings").glob("*.json")))
    (folder / "findings" / f"{number}.bin").write_bytes(data)
    (folder / "findings" / f"{number}.json").write_text(json.dumps({"what": what, "traceback": traceback}))


def _stored(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*"))] if folder.is_dir() else []


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + _ADDRESS_SPACE_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
