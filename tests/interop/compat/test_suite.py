"""SlateDB's own tests of its Python binding, run against Shale.

They are not part of this repository: ``SLATEDB_SOURCE`` names a checkout of SlateDB's (``make compat`` fetches one).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.compat.slatedb_exclusions import EXCLUDED
from tests.paths import REPOSITORY

SOURCE = os.environ.get("SLATEDB_SOURCE")
TESTS_MIN = 40
"""A checkout in which fewer tests are found has moved them."""


@pytest.mark.skipif(SOURCE is None, reason="SLATEDB_SOURCE names no checkout of SlateDB")
def test_the_tests_of_the_binding_pass() -> None:
    tests = Path(SOURCE or "") / "bindings/python/tests"
    plain = [
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.interop.compat.slatedb_suite",
        "--timeout=120",
        "-q",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, f"--rootdir={tests}", str(tests)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(("shared", "services", "."))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= TESTS_MIN
    skipped = re.search(r"(\d+) skipped", done.stdout)
    assert int(skipped[1] if skipped else 0) == len(EXCLUDED)


def test_excluded_tests_are_documented() -> None:
    page = (REPOSITORY / "docs/how-to/migrate-from-slatedb.md").read_text()
    for name, reason in EXCLUDED.items():
        assert f"`{name}`" in page
        assert reason in page
