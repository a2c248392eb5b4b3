"""Check what has changed, within a minute: ``python -m tests.checks.quick [--base main]`` (``make quick``).

Changed are the files that differ from the base, and new ones. Ruff checks them; then the unit tests run of the
packages that they belong to, or that have changed themselves. The default tests are ``make test``.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = Path("tests/unit")
SECONDS_MAX = 60


def changed(base: str) -> list[str]:
    """Return the paths that differ from the base or are new."""
    commands = (
        ["git", "diff", "--name-only", "--diff-filter=d", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found: set[str] = set()
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found.update(done.stdout.split("\n"))
    return sorted(found - {""})


def _candidates(file: str) -> list[Path]:
    """Return where tests of a file may be, the nearest first."""
    path = Path(file)
    if path.is_relative_to(UNIT):
        return [path if path.name.startswith("test_") else path.parent]
    if path.suffix != ".py" or path.parts[0] not in {"shared", "services"}:
        return []
    package = Path(*path.parts[2:]) if path.parts[0] == "shared" else Path(*path.parts[1:])
    first = package.parts[0].removeprefix("shale_")
    folder = UNIT / first / Path(*package.parts[1:-1])
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(UNIT) and parent != UNIT)]


def tests_of(files: Iterable[str]) -> list[str]:
    """Return the test files and folders for changed files, without those inside another one."""
    found: set[Path] = set()
    for file in files:
        nearest = next((each for each in _candidates(file) if (ROOT / each).exists()), None)
        if nearest is not None:
            found.add(nearest)
    return sorted(str(each) for each in found if not any(parent in found for parent in each.parents))


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.quick", description=main.__doc__)
    parser.add_argument("--base", default="HEAD", help="what changes are counted from; default: the last commit")
    parser.add_argument("--all-tests", action="store_true", help="no limit of time")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    files = changed(options.base)
    python = [file for file in files if file.endswith(".py")]
    commands = []
    if python:
        commands.append(["ruff", "check", "--force-exclude", *python])
        commands.append(["ruff", "format", "--check", "--force-exclude", *python])
    tests = tests_of(files)
    if tests:
        commands.append(["pytest", "-q", "-x", *tests])
    print(f"quick: {len(files)} changed files, tests: {' '.join(tests) or 'none'}")
    for command in commands:
        left = None if options.all_tests else SECONDS_MAX - (time.monotonic() - started)
        try:
            done = subprocess.run(
                [str(Path(sys.executable).with_name(command[0])), *command[1:]], cwd=ROOT, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"quick: stopped after {SECONDS_MAX} s; the rest is for `make test`")
            return 0
        if done.returncode not in {0, 5}:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
