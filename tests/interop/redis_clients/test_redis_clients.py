"""Clients of other languages on the RESP port, with their lock libraries.

``make tools`` installs ioredis, redis and redlock.  Go fetches the modules of the other program itself.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.external_tools import require_tool
from tests.integration.writer.writer_process import writer

HERE = Path(__file__).parent
NODE_MODULES = Path(sys.prefix) / "tools" / "node_modules"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with writer(tmp_path_factory.mktemp("resp"), "--set", "resp.enabled=true", "--set", "resp.port=0") as one:
        yield str(one.daemon.port("resp_port"))


def require_done(command: list[str], directory: Path, **env: str) -> None:
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **env}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


@pytest.mark.skipif(not NODE_MODULES.exists(), reason="make tools installs the clients")
def test_clients_in_javascript(port: str) -> None:
    require_done([require_tool("node"), str(HERE / "client.cjs"), port], HERE, NODE_PATH=str(NODE_MODULES))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go")
def test_clients_in_go(port: str, tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum", "client.go"):
        shutil.copy(HERE / name, tmp_path)
    require_done(["go", "run", ".", port], tmp_path)
