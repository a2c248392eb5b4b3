"""Run the tests that failed in the last run again, each alone: ``python -m tests.checks.flaky``.

The full tier runs thousands of tests with real processes on a machine that may be busy.  A test that passes each time
when it runs alone is reported as flaky, and the tier goes on.  That is a defect of the test or of the code; mend it in
the next change.  Several failures, or a run that did not get to its end, fail the tier at once.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence

from tests import failed_tests

MOST = 2
"""More failures than these are no accident."""
RUNS = 10


def passes_alone(test: str) -> bool:
    """Run one test in a process of its own."""
    command = [sys.executable, "-m", "pytest", test]
    return subprocess.run(command, check=False).returncode == 0


def judge(failed: Sequence[str] | None, passes: Callable[[str], bool]) -> tuple[bool, list[str]]:
    """Decide whether the tier goes on; return that, and lines that say why.

    Args:
        failed: The tests that failed; None after a run without an end.
        passes: Runs a test once more, alone.
    """
    if failed is None:
        return False, ["the last run did not get to its end"]
    if not failed:
        return False, ["no test failed: something else ended the last run with an error"]
    if len(failed) > MOST:
        return False, [f"{len(failed)} tests failed, more than {MOST}"]
    lines = [f"flaky: {test}" if all(passes(test) for _ in range(RUNS)) else f"fails: {test}" for test in failed]
    return all(line.startswith("flaky") for line in lines), lines


def main() -> None:
    """Print the judgement; exit with 1 if the tier must end."""
    goes_on, lines = judge(failed_tests.load(), passes_alone)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(0 if goes_on else 1)


if __name__ == "__main__":
    main()
