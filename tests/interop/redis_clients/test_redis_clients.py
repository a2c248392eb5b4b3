"""Clients of other languages on the RESP port, with their lock libraries.

They are not installed with this repository.  ``REDIS_NODE_MODULES`` names a ``node_modules`` with ioredis, redis and
redlock; ``REDIS_GO_MODULE`` names a directory with a ``go.mod`` that requires go-redis, redislock and redsync.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.writer.writer_process import writer

HERE = Path(__file__).parent
NODE_MODULES = os.environ.get("REDIS_NODE_MODULES")
GO_MODULE = os.environ.get("REDIS_GO_MODULE")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with writer(tmp_path_factory.mktemp("resp"), "--set", "resp.enabled=true", "--set", "resp.port=0") as one:
        yield str(one.daemon.port("resp_port"))


def require_done(command: list[str], directory: Path, **env: str) -> None:
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **env}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


@pytest.mark.skipif(NODE_MODULES is None, reason="REDIS_NODE_MODULES names no modules")
def test_clients_in_javascript(port: str) -> None:
    require_done(["node", str(HERE / "client.cjs"), port], HERE, NODE_PATH=NODE_MODULES or "")


@pytest.mark.skipif(GO_MODULE is None, reason="REDIS_GO_MODULE names no module")
def test_clients_in_go(port: str, tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(Path(GO_MODULE or "") / name, tmp_path)
    shutil.copy(HERE / "client.go", tmp_path)
    require_done(["go", "run", ".", port], tmp_path)
