"""What ``shale verify`` and ``shale gc plan`` say about the database."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

from tests.soak.stack.daemons import MIN_AGE_S
from tests.soak.stack.store import URL

VERIFY_S, GC_S = 600.0, 120.0
ROUNDS = 6
FINDINGS = 4
Run = Callable[[Sequence[str], float], CompletedProcess[str]]


@dataclass(frozen=True)
class Verified:
    """One run of ``verify``."""

    code: int
    findings: tuple[str, ...]
    objects: int

    @property
    def is_conclusive(self) -> bool:
        """Whether it ended with a verdict; while the store fails, it may not."""
        return self.code in (0, FINDINGS)


def verify(run: Run, *, deep: bool = False) -> Verified:
    """Verify the database, which may be in use."""
    done = run(_shale("verify", "-o", "json", *(["--deep"] if deep else [])), VERIFY_S)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return Verified(done.returncode or 1, (done.stderr[-500:],), 0)
    findings = tuple(json.dumps(each)[:500] for each in said.get("findings", ()))
    return Verified(done.returncode, findings, int(said.get("checked", {}).get("objects", 0)))


def leftover_garbage(run: Run) -> list[str]:
    """Return the objects that gc would delete although it had time to: with one process alone, after some passes.

    Leases of readers that have ended expire one after the other, so several passes may be necessary.
    """
    left: list[str] = []
    age = ("--min-age", f"{MIN_AGE_S:g}s")
    for _ in range(ROUNDS):
        done = run(_shale("gc", "plan", "-o", "json", *age), GC_S)
        if done.returncode:
            return [f"gc plan ended with {done.returncode}: {done.stderr[-300:]}"]
        plan: dict[str, Any] = json.loads(done.stdout)
        left = [json.dumps(each)[:200] for each in plan["objects"]]
        if not left:
            return []
        time.sleep(MIN_AGE_S / 4)
    return left


def _shale(*words: str) -> list[str]:
    return [sys.executable, "-m", "shale_cli", *words, "-u", URL]
