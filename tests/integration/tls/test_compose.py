"""The certificate that the page makes for the local stack, and the daemons and programs that take it."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from shale_cli.framework.daemons import DAEMONS
from shale_cli.framework.probe import probe
from tests.code_blocks import blocks, commands
from tests.external_tools import require_tool
from tests.integration.cli.commands import shale
from tests.integration.daemons.daemon_process import running
from tests.paths import REPOSITORY

SERVICES: dict[str, Any] = yaml.safe_load((REPOSITORY / "deploy" / "compose" / "tls.yml").read_text())["services"]
NAMES = (*DAEMONS, "localhost")
LOADED_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Run the commands of the page, and return the folder with the certificate."""
    require_tool("openssl")
    (block,) = [
        each for each in blocks(REPOSITORY / "docs" / "how-to" / "tls.md") if each.text.startswith("mkdir -p tls")
    ]
    for line in commands(block.text):
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True)
    assert {file.name for file in (tmp_path / "tls").iterdir()} == {"tls.crt", "tls.key", "ca.crt"}
    return tmp_path / "tls"


def test_the_stack_serves_and_asks_over_tls(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        name: str(value).replace("/etc/shale/tls", str(folder))
        for name, value in SERVICES["writer"]["environment"].items()
    }
    url, ca_file = f"file://{tmp_path}/store/orders", str(folder / "ca.crt")
    options = ("--url", url, "--port", "0")
    with running("shale_writer", *options, log=tmp_path / "log", env=environment) as daemon:
        data, admin = (daemon.port(name) for name in ("port", "admin_port"))
        to = ("--endpoint", f"https://localhost:{data}", "--ca-file", ca_file)
        assert shale("kv", "put", "first", "hello", *to, "-u", url).returncode == 0
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert probe(f"127.0.0.1:{admin}") == 0, "the health check of the image"

        token = tmp_path / "token"
        token.write_text("any")
        program = [sys.executable, "deploy/compose/load.py", f"https://localhost:{data}", "500", str(token)]
        trusted = dict.fromkeys(SERVICES["demo-load"]["environment"], ca_file)
        with subprocess.Popen(program, cwd=REPOSITORY, env={**os.environ, **trusted}) as load:
            try:
                deadline = time.monotonic() + LOADED_S
                while not _count(url, "order/"):
                    assert load.poll() is None
                    assert time.monotonic() < deadline
            finally:
                load.terminate()
        assert daemon.stop() == 0


def _count(url: str, prefix: str) -> int:
    found = shale("kv", "scan", "--count", "--prefix", prefix, "-o", "json", "-u", url)
    return int(json.loads(found.stdout)["rows"])


def test_the_certificate_has_the_name_of_every_service(folder: Path) -> None:
    """Prometheus checks these names."""
    for name in NAMES:
        program = ["openssl", "x509", "-in", str(folder / "tls.crt"), "-noout", "-checkhost", name]
        told = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        assert "does match" in told, told
