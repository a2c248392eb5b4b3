"""Redis' own tests of strings, counters, expiry, keys and transactions, run against a writer.

They are not part of this repository: ``REDIS_SOURCE`` names a checkout of Redis' (``make redis-suite`` fetches one).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.writer.writer_process import Client, writer
from tests.interop.redis_suite.redis_exclusions import EXCLUDED, IGNORED_TAGS
from tests.paths import REPOSITORY

SOURCE = os.environ.get("REDIS_SOURCE")
PASSED_MIN = {
    "unit/type/string": 69,
    "unit/type/incr": 28,
    "unit/expire": 57,
    "unit/keyspace": 34,
    "unit/multi": 20,
}
"""A checkout in which fewer tests pass has moved them."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    flags = ("resp.enabled=true", "resp.port=0", "resp.allow_flush=true")
    with writer(tmp_path_factory.mktemp("redis"), *(part for flag in flags for part in ("--set", flag))) as one:
        yield resp_port(one)


def resp_port(client: Client) -> int:
    return client.daemon.port("resp_port")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tests: they write next to themselves."""
    directory = tmp_path_factory.mktemp("suite")
    shutil.copytree(Path(SOURCE or "") / "tests", directory / "tests", symlinks=True)
    return directory


@pytest.mark.skipif(SOURCE is None, reason="REDIS_SOURCE names no checkout of Redis")
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed")
@pytest.mark.parametrize("unit", EXCLUDED)
def test_the_tests_of_redis_pass(unit: str, port: int, suite: Path) -> None:
    where = ["--host", "127.0.0.1", "--port", str(port), "--singledb", "--ignore-encoding", "--ignore-digest"]
    tags = ["--tags", " ".join(f"-{tag}" for tag in IGNORED_TAGS)]
    skips = [part for name in EXCLUDED[unit] for part in ("--skiptest", name)]
    done = subprocess.run(
        ["tclsh", "tests/test_helper.tcl", "--single", unit, "--durable", *where, *tags, *skips],
        cwd=suite,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lines = _COLOURS.sub("", done.stdout)
    assert done.returncode == 0, lines + done.stderr
    assert "All tests passed without errors" in lines, lines
    skipped = re.findall(r"^\[skip\]: (.*)$", lines, re.MULTILINE)
    assert set(skipped) == set(EXCLUDED[unit])
    assert len(re.findall(r"^\[ok\]: ", lines, re.MULTILINE)) >= PASSED_MIN[unit]


def test_excluded_tests_are_documented() -> None:
    page = " ".join((REPOSITORY / "docs/reference/redis.md").read_text().split())
    for unit, tests in EXCLUDED.items():
        assert f"`{unit}`" in page
        for name, reason in tests.items():
            assert f"`{name}`" in page
            assert reason in page
