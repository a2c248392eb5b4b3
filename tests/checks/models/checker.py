"""Runs TLC, the model checker of TLA+, on a module with given constants."""

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shale_spark.prerequisites import installed
from tests.paths import REPOSITORY

MODELS = REPOSITORY / "schemas/models"
TOOLS = REPOSITORY / ".shale/tools"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
_COUNTS = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found, (\d+) states left on queue")
_VIOLATION = re.compile(r"^Error: (?:Invariant|Action property|Property) (\w+) is violated", re.MULTILINE)
_STEP = re.compile(r"^State \d+: ", re.MULTILINE)


class CheckerMissing(Exception):
    """TLC or Java is not there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC found.

    ``violated``: the property that does not hold; ``None`` if all hold.  ``steps``: length of the counterexample.
    ``is_complete``: whether every reachable state was visited.
    """

    output: str
    states: int
    violated: str | None
    steps: int
    is_complete: bool


def settings() -> dict[str, Any]:
    """Return ``schemas/models/models.toml``."""
    return tomllib.loads((MODELS / "models.toml").read_text())


def jar_path() -> Path:
    """Return the checker if it was fetched before and is the one that is declared.

    Raises:
        CheckerMissing: it was not fetched, or has other bytes.
    """
    checker = settings()["checker"]
    _, name, version = checker["artifact"].split(":")
    jar = TOOLS / f"{name}-{version}.jar"
    if not jar.exists():
        raise CheckerMissing(f"{jar} is missing: make model fetches it")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != checker["sha256"]:
        raise CheckerMissing(f"{jar} has another checksum than schemas/models/models.toml says: remove it")
    return jar


def fetch() -> Path:
    """Return the checker; Maven fetches it if it is not there.

    Raises:
        CheckerMissing: Maven is not installed, or cannot fetch it.
    """
    try:
        return jar_path()
    except CheckerMissing:
        maven = shutil.which("mvn")
    if maven is None:
        raise CheckerMissing("Maven, which fetches the model checker, is not installed")
    artifact = settings()["checker"]["artifact"]
    command = [maven, "-q", "-B", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={TOOLS}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise CheckerMissing(f"Maven cannot fetch {artifact}:\n{fetched.stdout[-2000:]}")
    return jar_path()


def check(body: str, config: str, *, heap: str = "2g", is_short: bool = False, workers: int = 1) -> Outcome:
    """Visit every reachable state of a module.

    Args:
        body: the text of the module, between its first and its last line; it extends modules in ``schemas/models``.
        config: the text of TLC's configuration.
        heap: memory for Java.
        is_short: the run takes seconds, so the time of Java's start counts more than its speed.
        workers: threads.

    Raises:
        CheckerMissing: TLC or Java is not there.
        RuntimeError: the module or the configuration is wrong.
    """
    java = next(installed(os.environ), None)
    if java is None:
        raise CheckerMissing("Java is not installed: make java")
    with TemporaryDirectory() as folder:
        module = f"---- MODULE Checked ----\n{body}\n====\n"
        (Path(folder) / "Checked.tla").write_text(module)
        (Path(folder) / "Checked.cfg").write_text(config)
        speed = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if is_short else ["-XX:+UseParallelGC"]
        options = [f"-Xmx{heap}", f"-Djava.io.tmpdir={folder}", f"-DTLA-Library={MODELS}", *speed]
        tlc = [
            "-cp",
            str(jar_path()),
            "tlc2.TLC",
            "-workers",
            str(workers),
            "-nowarning",
            "-metadir",
            f"{folder}/states",
        ]
        command = [str(java.path / "bin/java"), *options, *tlc, "Checked"]
        output = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder).stdout
    return read_outcome(output)


def read_outcome(output: str) -> Outcome:
    """Return what TLC's output says.

    Raises:
        RuntimeError: TLC stopped before it had a result.
    """
    counts = _COUNTS.findall(output)
    violation = _VIOLATION.search(output)
    if not counts or ("Error:" in output and violation is None):
        raise RuntimeError(f"TLC stopped:\n{output[-4000:]}")
    _, distinct, left = counts[-1]
    return Outcome(
        output=output,
        states=int(distinct.replace(",", "")),
        violated=None if violation is None else violation.group(1),
        steps=len(_STEP.findall(output)),
        is_complete=violation is None and left == "0",
    )


def configuration(
    constants: Mapping[str, object], *, invariants: Sequence[str] = (), properties: Sequence[str] = (), extra: str = ""
) -> str:
    """Return the text of a configuration."""
    lines = ["CHECK_DEADLOCK FALSE", "CONSTANTS"]
    lines += [f"  {name} = {literal(value)}" for name, value in constants.items()]
    lines += [f"INVARIANT {name}" for name in invariants]
    lines += [f"PROPERTY {name}" for name in properties]
    return "\n".join([*lines, extra, ""])


def literal(value: object) -> str:
    """Return a constant as TLA+ writes it; a set or list becomes a set of interchangeable values."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(map(str, value)) + "}"
    return str(value)
