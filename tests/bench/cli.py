"""What a command line costs before it does anything: CPU time, because a busy machine would tell its own load."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.line import BenchLine

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}/shared:{ROOT}/services", "PATH": os.environ["PATH"], "COLUMNS": "80"}
TIMES = 9


def cli_lines() -> Iterator[BenchLine]:
    """Whole processes, beside one that only starts Python, and one that imports typer besides."""
    reference = _cpu_ms("-c", "pass")
    yield _line(reference, _cpu_ms("-c", "import typer"), "typer alone", "told")
    for words in ("--version", "kv scan --help", "kv get", "nonsense", "--help"):
        yield _line(reference, _shale(*words.split()), f"shale {words}", "150 ms at most")
    completing = {"_SHALE_COMPLETE": "zsh", "_SHALE_LINE": "shale kv sc"}
    yield _line(reference, _shale(**completing), "shale kv sc<TAB>", "150 ms at most")
    with tempfile.TemporaryDirectory() as folder:
        where = ("-u", f"file://{folder}/db")
        _run("-m", "shale_cli", "kv", "put", "a", "1", *where)
        for words in ("db info", "manifest list", "checkpoint list", "kv get a"):
            yield _line(reference, _shale(*words.split(), *where), f"shale {words}", "told")


def _line(reference: float, ours: float, name: str, target: str) -> BenchLine:
    return BenchLine(name=name, ours=ours, reference=reference, unit="ms", target=target)


def _shale(*words: str, **environment: str) -> float:
    return _cpu_ms("-m", "shale_cli", *words, **environment)


def _cpu_ms(*arguments: str, **environment: str) -> float:
    """User and system time of a process; the least of several."""
    return min(_run(*arguments, **environment) for _ in range(TIMES)) * 1000


def _run(*arguments: str, **environment: str) -> float:
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT | environment,
    ) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime
