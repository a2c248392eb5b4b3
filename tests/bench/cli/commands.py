"""The start-up cost of commands, as CPU time, which does not depend on the load of the machine."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.bench.line import BenchLine
from tests.paths import REPOSITORY

ENVIRONMENT = {"PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services", "PATH": os.environ["PATH"], "COLUMNS": "80"}
TIMES = 9


def cli_lines() -> Iterator[BenchLine]:
    """Measure whole processes, beside one that only starts Python, and one that also imports typer."""
    reference = _cpu_ms("-c", "pass")
    yield _line(reference, _cpu_ms("-c", "import typer"), "typer alone", "told")
    for words in ("--version", "kv scan --help", "kv get", "nonsense", "--help"):
        yield _line(reference, _shale(*words.split()), f"shale {words}", "150 ms at most")
    completing = {"_SHALE_COMPLETE": "zsh", "_SHALE_LINE": "shale kv sc"}
    yield _line(reference, _shale(**completing), "shale kv sc<TAB>", "150 ms at most")
    with tempfile.TemporaryDirectory() as folder:
        where = ("-u", f"file://{folder}/db")
        cpu_seconds_of("-m", "shale_cli", "kv", "put", "a", "1", *where)
        for words in ("db info", "manifest list", "checkpoint list", "kv get a"):
            yield _line(reference, _shale(*words.split(), *where), f"shale {words}", "told")


def _line(reference: float, ours: float, name: str, target: str) -> BenchLine:
    return BenchLine(name=name, ours=ours, reference=reference, unit="ms", target=target)


def _shale(*words: str, **environment: str) -> float:
    return _cpu_ms("-m", "shale_cli", *words, **environment)


def _cpu_ms(*arguments: str, **environment: str) -> float:
    """Return user and system time of a process; the least of several runs."""
    return min(cpu_seconds_of(*arguments, **environment) for _ in range(TIMES)) * 1000


def cpu_seconds_of(*arguments: str, **environment: str) -> float:
    """Return user and system time of one Python process."""
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
