"""``python -m tests.fuzz --minutes 5``: run all targets, and report executions, lines and findings.

Exits with 1 if there is a finding.  Its input is then in ``.shale/fuzz/findings``; after the fix it goes to
``tests/fuzz/regressions/<target>``, which the tests replay.
"""

import argparse
import base64
import hashlib
import os
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.line_coverage import files_of, function_lines
from tests.fuzz.supervisor import Outcome, minimized, replay, run_targets
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets

FOLDER = Path(".shale/fuzz")
_SHOWN_BYTES_MAX = 4096


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="time of all targets together")
    parser.add_argument("--executions", type=int, help="inputs of each target, instead of a time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--seed", type=int, default=1, help="another number tries other inputs")
    parser.add_argument("--target", action="append", default=[], help="only targets whose names begin so")
    parser.add_argument("--replay", type=Path, help="run this input, or those below a folder, and nothing else")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where inputs and findings go")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    options = parser.parse_args(given)
    targets = [each for each in all_targets() if each.name.startswith(tuple(options.target) or "")]
    if options.list:
        print(*(target.name for target in targets), sep="\n")
        return 0
    if not targets:
        parser.error("no target has such a name")
    if options.replay is not None:
        return replay_all(targets, options.replay)
    outcomes = run_targets(
        targets,
        options.folder / "runs",
        seconds=60 * options.minutes if options.executions is None else 24 * 3600,
        jobs=options.jobs,
        seed=options.seed,
        executions=options.executions,
    )
    report(outcomes)
    return int(keep_findings(outcomes, options.folder / "findings"))


def replay_all(targets: Sequence[Target], place: Path) -> int:
    """Run the inputs of ``<folder>/<target>/<name>``, others with the first target; return whether one is a finding."""
    by_name = {target.name: target for target in all_targets()}
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    found = False
    for file in files:
        target = by_name.get(file.parent.name, targets[0])
        what = replay(target, file.read_bytes())
        if what is not None:
            found = True
            print(f"FOUND {target.name}: {what}: {file}")
    print(f"{len(files)} inputs")
    return int(found)


def report(outcomes: Sequence[Outcome]) -> None:
    """Print a line for each target, and the lines that ran of each module."""
    for each in sorted(outcomes, key=lambda each: each.target.name):
        print(f"{each.target.name:34} {each.executions:9,} executions  {each.seconds:6.1f} s")
    hit: dict[str, set[int]] = {}
    for each in outcomes:
        for module, lines in each.hit.items():
            hit.setdefault(module, set()).update(lines)
    print()
    for file, module in sorted(files_of(tuple(hit)).items(), key=lambda item: item[1]):
        lines = function_lines(file)
        ran = len(hit[module] & lines)
        print(f"{module:46} {ran:4} of {len(lines):4} lines  {100 * ran // max(len(lines), 1):3} %")
    print(f"\n{sum(each.executions for each in outcomes):,} executions of {len(outcomes)} targets")


def keep_findings(outcomes: Sequence[Outcome], folder: Path) -> bool:
    """Keep a short input for each finding, and print them; return whether there is one."""
    found = False
    for each in outcomes:
        for finding in each.findings:
            found = True
            data = minimized(each.target, finding)
            place = folder / each.target.name
            place.mkdir(parents=True, exist_ok=True)
            file = place / hashlib.sha256(data).hexdigest()[:12]
            file.write_bytes(data)
            print(f"FOUND {each.target.name}: {finding.what}: {len(data)} bytes in {file}")
            if replay(each.target, data) != finding.what:
                print("  not seen again with this input alone: what ran before or beside it matters")
            print(textwrap.indent(finding.traceback, "  "), end="")
            if len(data) <= _SHOWN_BYTES_MAX:
                print(f"  in base64: {base64.b64encode(data).decode()}")  # where only the log of a run is kept
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="shale-fuzz-") as temporary:
        tempfile.tempdir = temporary  # of all children, also of those that crash
        status = main()
    sys.exit(status)
