"""How long a command line takes before it does anything."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.line import BenchLine, seconds

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}/shared:{ROOT}/services", "PATH": os.environ["PATH"], "COLUMNS": "80"}


def cli_lines() -> Iterator[BenchLine]:
    """Whole processes, beside one that only starts Python."""
    reference = _seconds("-c", "pass") * 1000
    for name, arguments in (
        ("shale --version", ("--version",)),
        ("shale kv scan --help", ("kv", "scan", "--help")),
        ("shale --help", ("--help",)),
    ):
        ours = _seconds("-m", "shale_cli", *arguments) * 1000
        target = "150 ms at most" if name != "shale --help" else "told"
        yield BenchLine(name=name, ours=ours, reference=reference, unit="ms", target=target)


def _seconds(*arguments: str) -> float:
    command = [sys.executable, *arguments]
    return seconds(lambda: subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT))
