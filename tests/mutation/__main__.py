"""``python -m tests.mutation run|report``: see ``--help``."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.report import judge
from tests.paths import REPOSITORY

PACKAGES = ("shale.protocol", "shale.gc", "shale.compaction", "shale.engine.write")
TESTS = ("tests/unit", "tests/simulation", "tests/model")
LEFT_OUT = ("structure", "docs", "deploy", "kube", "checks", "kernels", "cli", "telemetry", "console", "spark")
"""Folders of unit tests that run no code of these packages, or only in other processes."""
FOLDER = REPOSITORY / ".shale" / "mutation"
SCORE_MIN = 0.9


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the run ended, or if the report is good."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are; a run continues there")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests for one mutant")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the mutants")
    parser.add_argument("--again", action="store_true", help="also mutants that survived, after new tests were written")
    parser.add_argument("--tests", action="append", help="files or folders of tests")
    chosen = parser.parse_args(arguments)
    if chosen.action == "report":
        return judge(chosen.folder, chosen.packages, score_min=SCORE_MIN)
    tests = chosen.tests or TESTS
    left_out = [f"--ignore=tests/unit/{name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-p", "tests.mutation.plugin", "-p", "no:xdist", "-s", *left_out]
    command += [f"--mutate={package}" for package in chosen.packages]
    command += [f"--mutation-folder={chosen.folder}", f"--mutation-jobs={chosen.jobs}"]
    command += [f"--mutation-budget={chosen.budget}", f"--mutation-seconds={60 * chosen.minutes}"]
    command += [f"--mutation-seed={chosen.seed}", *(["--mutation-again"] if chosen.again else []), *tests]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
