"""Clients that two public generators make of the OpenAPI document write, read, scan and delete rows.

The generators are installed here, each into a folder of its own; without them, or without a registry, the test is
skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.writer.writer_process import Client, writer

PROGRAMS = Path(__file__).parent
PYTHON_PACKAGES = ("openapi-python-client==0.29.1",)
NODE_PACKAGES = ("@hey-api/openapi-ts@0.95.0", "typescript@5.9.3", "@types/node@20.19.43")
INSTALL_S = 240
TOKEN = "s3cret"
EXPECTED = {
    "put": 204,
    "get": "one",
    "batch": 3,
    "txn": 1,
    "failed": [412, [0]],
    "scan": [["a/ü 1", "one"], ["b", "22"], ["c", "3"]],
    "delete": 204,
    "absent": 404,
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with writer(tmp_path, "--set", "flush_interval=5ms", env={"SHALE_HTTP__BEARER_TOKEN": TOKEN}) as one:
        document = one.call("GET", "/openapi.json", Authorization=f"Bearer {TOKEN}")[1]
        (tmp_path / "openapi.json").write_bytes(document)
        yield one


@pytest.mark.slow
def test_a_generated_python_client(client: Client, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    python = tmp_path / "tool/bin/python"
    _install([uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "tool")], tmp_path)
    _install([uv, "pip", "install", "--quiet", "--python", str(python), *PYTHON_PACKAGES], tmp_path)
    generator = ["tool/bin/openapi-python-client", "generate", "--meta", "none"]
    _run([*generator, "--path", "openapi.json", "--output-path", "shale_client"], tmp_path)
    shutil.copy(PROGRAMS / "program.py", tmp_path)
    assert _run([str(python), "program.py", *_target(client)], tmp_path) == EXPECTED


@pytest.mark.slow
def test_a_generated_typescript_client(client: Client, tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("node and npm are not installed")
    (tmp_path / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    config = {"input": "openapi.json", "output": {"path": "generated", "importFileExtension": ".js"}}
    plugins = ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"]
    (tmp_path / "openapi-ts.config.mjs").write_text(f"export default {json.dumps({**config, 'plugins': plugins})};")
    _install([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES], tmp_path)
    _run([node, "node_modules/@hey-api/openapi-ts/bin/run.js"], tmp_path)
    shutil.copy(PROGRAMS / "program.ts", tmp_path)
    modern = ["--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--types", "node"]
    compiler = [node, "node_modules/typescript/bin/tsc", "--strict", "--skipLibCheck", *modern]
    _run([*compiler, "--outDir", "build", "program.ts"], tmp_path)
    assert _run([node, "build/program.js", *_target(client)], tmp_path) == EXPECTED


def _target(client: Client) -> tuple[str, str]:
    return f"http://127.0.0.1:{client.port}", TOKEN


def _install(command: list[str], folder: Path) -> None:
    """Run a command that needs a package registry; skip the test if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]} could not install the generator: {done.stderr[-300:]}")


def _run(command: list[str], folder: Path) -> Any:
    """Run a command that must succeed; return its last line as JSON, if it is JSON."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = (done.stdout.splitlines() or [""])[-1]
    return json.loads(last) if last.startswith("{") else last
