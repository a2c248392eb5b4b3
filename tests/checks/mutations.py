"""Break functions that docs/reference/design-documents.md names, and see their tests fail.

``python -m tests.checks.mutations [--count 20] [--seed N] [--all]``.  Sections are drawn at random by the printed seed.
First all drawn tests must pass as they are.  Then each function is broken alone, and its test must fail.
"""

import argparse
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Sequence

from tests.checks.design_table import PAGE, ROOT, Section, read_sections
from tests.checks.mutated_function import VARIABLE

FAILED = 1
"""Exit code of pytest when tests ran and some failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every mutation is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--all", action="store_true", help="all sections, not some at random")
    chosen = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    sections = read_sections(PAGE.read_text())
    if not chosen.all:
        sections = random.Random(seed).sample(sections, min(chosen.count, len(sections)))
    print(f"{len(sections)} sections, seed {seed}")
    if run_tests(sorted({section.test for section in sections})) != 0:
        print("the tests fail without a mutation")
        return 1
    missed = [section for section in sections if not is_found(section)]
    for section in missed:
        print(f"NOT FOUND {section.document}, {section.title}: {section.function} is broken, and {section.test} passes")
    print(f"{len(sections) - len(missed)} of {len(sections)} mutations are found")
    return 1 if missed else 0


def is_found(section: Section) -> bool:
    """Return whether the test of a section fails while its function is broken."""
    result = run_tests([section.test], mutated=section.function)
    print(
        f"{'found' if result == FAILED else result}  {section.function}  {section.test.partition('::')[2]}", flush=True
    )
    return result == FAILED


def run_tests(tests: Sequence[str], *, mutated: str = "") -> int:
    """Run tests in a process of their own; return the exit code of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.checks.mutated_function", *tests]
    environment = {**os.environ, VARIABLE: mutated}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
