"""Commands and the local stack, run as a user runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY
from tests.processes.forks import run

ENVIRONMENT = {
    "PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services",
    "PATH": os.environ["PATH"],
    "HOME": os.environ["HOME"],
}


def shale(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return run("shale_cli", *arguments, stdin=stdin, env={**ENVIRONMENT, **environment}, folder=Path.cwd())


def program(*arguments: str, timeout_s: float = 120, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with its own interpreter, as a user starts it."""
    command = [sys.executable, "-m", "shale_cli", *arguments]
    env = {**ENVIRONMENT, **environment}
    return subprocess.run(command, capture_output=True, env=env, check=False, timeout=timeout_s)


def answer(*arguments: str, **environment: str) -> Any:
    result = shale(*arguments, **environment)
    assert (result.returncode, result.stderr) == (0, b""), result.stderr.decode()
    data = json.loads(result.stdout)
    assert data["schema_version"] == 1
    return data


def refusal(*arguments: str, **environment: str) -> tuple[int, str]:
    result = shale(*arguments, **environment)
    assert result.stdout == b""
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return result.returncode, lines[0]


@contextmanager
def running(
    url: str, *options: str, **variables: str
) -> Iterator[tuple["subprocess.Popen[bytes]", dict[str, dict[str, object]]]]:
    """Start the stack on free ports; yield the paths of its processes by name, once it is ready."""
    command = [sys.executable, "-m", "shale_cli", "up", "--port", "0", "--admin-port", "0", "-o", "jsonl", "-u", url]
    command += options
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT | variables
    ) as child:
        try:
            lines = [_next_line(child) for _ in range(4)]
            yield child, {line["process"]: line for line in lines}
        finally:
            if child.poll() is None:
                child.terminate()


def _next_line(child: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Read the next line of a stack; fail with its log if it ended instead."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        _, errors = child.communicate(timeout=60)
        raise AssertionError(f"the stack ended with exit code {child.returncode}: {errors.decode()}")
    document: dict[str, Any] = json.loads(line)
    return document
