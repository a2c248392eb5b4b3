"""An interrupted command releases its resources, so that the next one needs no force."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

import shale
from shale.service.exit_codes import ExitCode
from tests.integration.spark.load.flaky_codec import BEGUN
from tests.paths import PYTHONPATH

CODEC = "tests.integration.spark.load.flaky_codec:FlakyCodec"
PYTHON_LOAD = """
import sys
from shale_spark.load import load
from shale_spark.session import spark_session
spark = spark_session(master="local[2]", conf={"spark.driver.memory": "512m"})
rows = spark.read.schema("key string, value binary").json(sys.argv[1])
load(rows, sys.argv[2], value="value", value_format=sys.argv[3], mode="append")
"""

pytestmark = pytest.mark.soak


def started(folder: Path, *command: str, **env: str) -> "subprocess.Popen[bytes]":
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **env},
            cwd=folder,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def interrupted(folder: Path, *command: str) -> int:
    """Return the exit code after Ctrl-C in the middle of a task's rows."""
    begun = folder / "begun"
    process = started(folder, *command, **{BEGUN: str(begun)})
    try:
        deadline = time.monotonic() + 150
        while not begun.exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        return process.wait(timeout=60)
    finally:
        process.kill()


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Return rows to append to a database whose last writer has closed it."""
    lines = [json.dumps({"key": f"k{number:06}", "value": "dg=="}) for number in range(20_000)]
    (tmp_path / "rows.json").write_text("\n".join(lines))

    async def create() -> None:
        async with shale.Db.open(f"file://{tmp_path}/db") as db:
            await (await db.put(b"a", b"1")).durable()

    anyio.run(create)
    return str(tmp_path / "rows.json")


def command_of(source: str, url: str) -> tuple[str, ...]:
    options = ("--format", "json", "--schema", "key string, value binary", "--mode", "append", "--master", "local[2]")
    return (
        "-m", "shale_cli", "spark", "load", source, *options, "--value", "value", "--value-format", CODEC,
        "--conf", "spark.driver.memory=512m", "-u", url,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["command", "python"])
def test_an_append_that_was_interrupted_is_started_again_without_force(how: str, source: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    command = command_of(source, url)
    if how == "command":
        assert interrupted(tmp_path, *command) == ExitCode.INTERRUPTED, (tmp_path / "log").read_text()
    else:
        assert interrupted(tmp_path, "-c", PYTHON_LOAD, source, url, CODEC) != 0
    assert started(tmp_path, *command).wait(timeout=120) == 0, (tmp_path / "log").read_text()

    async def keys() -> int:
        async with shale.DbReader.open(url) as reader:
            return len([row async for row in reader.scan()])

    assert anyio.run(keys) == 20_001
