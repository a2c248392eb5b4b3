"""The harness itself: each kind of misbehaviour is a finding, and the work goes on after it."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shale.errors import CorruptionError
from tests.fuzz.flat_mutation import places_of
from tests.fuzz.hang import HangWatch, Waits, waits_of
from tests.fuzz.line_coverage import LineCoverage, files_of, function_lines
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import PATH, require_place
from tests.fuzz.samples import sections
from tests.fuzz.target import Difference
from tests.fuzz.targets.databases import case_of, with_changes
from tests.interop.slatedb_process import PackageProcess
from tests.paths import PYTHONPATH, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = """
import ctypes, json, os, sys, time
from pathlib import Path
from tests.fuzz import hang as hang_module, supervisor, worker
from tests.fuzz.target import Difference, Target

supervisor.HANG_S = 2
hang_module._FACTOR_OF_SEEDS = 1
worker.MEMORY_MAX = 64 << 20

def hang():
    time.sleep(60)

def run(data):
    kind = data[:1]
    if kind == b"c": ctypes.string_at(0)
    if kind == b"h": hang()
    if kind == b"m": b"x" * (128 << 20)
    if kind == b"e": raise KeyError("no such key")
    if kind == b"d": raise Difference("two readers: 1 and 2")
    if kind == b"v": raise ValueError
    if kind == b"x": os._exit(0)

def late(data):
    # It ends after the decision, and before it is killed.
    while data == b"late" and not (folder / "late" / "traceback").stat().st_size: time.sleep(0.01)

seeds = [b"v", *(kind + b"....." for kind in (b"e", b"c", b"h", b"d", b"x", b"m")), b"fine"]
target = Target("planted", run, lambda: seeds, (ValueError,), ("shale.format.boundary",))
folder = Path(sys.argv[1])
outcome, = supervisor.run_targets([target], folder, seconds=20, jobs=1, seed=1, executions=60)
short = supervisor.minimized(target, next(each for each in outcome.findings if "KeyError" in each.what), seconds=5)
what = {each.what: each.traceback for each in outcome.findings}
again = {data.decode(): supervisor.replay(target, data) for data in (b"v", b"x", b"h", b"e", b"c")}

others = [Target("late", late, lambda: [b"late", b"fine"], (), ()), Target("seeds", run, hang, (), ())]
outcomes = supervisor.run_targets(others, folder, seconds=40, jobs=2, seed=1, executions=9)
other = {each.target.name: [(one.what, one.data.decode()) for one in each.findings] for each in outcomes}
print(json.dumps({"what": what, "short": short.decode(), "other": other, "again": again}))
"""

BUSY = """
import os, sys

os.sched_setaffinity(0, {int(sys.argv[1])})
print("pinned", flush=True)
while True:
    pass
"""


@pytest.mark.slow
def test_a_crash_a_hang_memory_and_errors_are_findings_and_the_work_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "runs"],
        cwd=REPOSITORY,
        env={"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert sorted(found["what"]) == [
        "Difference: two readers",
        f"KeyError at {program}:run",
        "SIGSEGV",
        "it ends the process with status 0",
        "memory",
        "no end within 2 s",
    ]
    assert found["short"] == "e"
    assert list(found["again"].values()) == [
        None,
        "it ends the process with status 0",
        "no end within 2 s",
        f"KeyError at {program}:run",
        "SIGSEGV",
    ]
    assert "in hang\n" in found["what"]["no end within 2 s"]
    assert "string_at" in found["what"]["SIGSEGV"]
    assert found["other"] == {"late": [["no end within 2 s", "late"]], "seeds": [["no end within 2 s", ""]]}


def test_waiting_for_the_machine_is_no_hang_until_it_lasts_too_long() -> None:
    def ends(*steps: tuple[float, int, Waits]) -> list[bool]:
        watch = HangWatch(10.0, 0.0)
        return [watch.is_hang(number, waits, now_s) for now_s, number, waits in steps]

    def ready(*waited_s: float) -> Waits:
        return Waits(dict(enumerate(waited_s)), is_for_disk=False)

    none, disk = ready(), Waits({}, is_for_disk=True)
    assert ends((1, 1, none), (11, 1, none), (12, 1, none)) == [False, False, True]
    assert ends((1, 1, none), (9, 2, none), (18, 2, none), (20, 2, none)) == [False, False, False, True]
    assert ends((1, 1, none), (8, 1, none), (12, 1, disk), (15, 1, none), (16, 1, none)) == [False] * 4 + [True]
    assert ends((1, 1, ready(3)), (30, 1, ready(23))) == [False, False]
    assert ends((1, 1, none), (62, 1, ready(60))) == [False, True]
    # A thread ended, and another began with its number.
    assert ends((1, 1, ready(50, 8)), (9, 1, ready(50)), (10, 1, ready(50, 1))) == [False] * 3
    assert ends((119, 0, none), (120, 0, none), (121, 0, none)) == [False, False, True]  # before the first input


def test_a_process_without_a_processor_waits() -> None:
    (processor, *_) = os.sched_getaffinity(0)
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(processor)], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for each in busy:
            assert each.stdout is not None
            assert each.stdout.readline() == b"pinned\n"
        until = time.monotonic() + 30
        while waits_of(busy[0].pid).processor_s[busy[0].pid] < 0.2 and time.monotonic() < until:
            os.sched_yield()
        assert waits_of(busy[0].pid).processor_s[busy[0].pid] >= 0.2
    finally:
        for each in busy:
            each.kill()
            each.communicate()
    assert waits_of(busy[0].pid).processor_s == {}


@pytest.mark.parametrize(
    "error", [CorruptionError("no path"), CorruptionError("x", path=PATH, offset=11), CorruptionError("x", path=PATH)]
)
def test_an_error_that_names_no_place_of_the_object_is_a_difference(error: CorruptionError) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(Difference):
        require_place(fail, offset_max=10)


def test_the_package_may_abort_and_is_asked_again(tmp_path: Path) -> None:
    input_path = REPOSITORY / "tests/fuzz/regressions/database and slatedb/slatedb-aborts"
    found = case_of(input_path.read_bytes())
    assert found is not None
    case, changes = found
    intact = _written(with_changes(case, {}), tmp_path / "intact")
    aborting = _written(with_changes(case, changes), tmp_path / "aborting")
    with contextlib.closing(PackageProcess()) as package:
        before = package.rows(intact)
        assert before
        assert package.rows(aborting) is None
        assert package.rows(intact) == before


def _written(objects: dict[str, bytes], folder: Path) -> Path:
    for key, data in objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_changes_are_equal_for_equal_seeds_and_change_something() -> None:
    data = bytes(range(100))
    changed = [mutate_bytes(random.Random(seed), data) for seed in range(200)]
    assert changed == [mutate_bytes(random.Random(seed), data) for seed in range(200)]
    assert len({*changed} - {data}) > 150


def test_the_fields_of_a_footer_are_found() -> None:
    data = sections()["info"][0]
    places, targets = places_of(data, "SsTableInfo")
    assert sum(place.width == 8 for place in places) >= 4
    assert targets
    assert all(place.at + place.width <= len(data) for place in places)


def test_lines_are_new_once() -> None:
    from shale.format.boundary import decode_boundary

    coverage = LineCoverage(("shale.format.boundary",))

    def good() -> None:
        decode_boundary(b"5")

    def bad() -> None:
        with pytest.raises(CorruptionError):
            decode_boundary(b"x")

    calls: list[Callable[[], None]] = [good, good, bad, good, bad]
    assert [coverage.watch(call) for call in calls] == [True, False, True, False, False]
    (file,) = files_of(("shale.format.boundary",))
    assert coverage.hit[file]
    assert coverage.hit[file] & function_lines(file)
