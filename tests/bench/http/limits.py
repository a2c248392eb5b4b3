"""What quotas cost a request, and the audit log a call of the admin port, in instructions."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.http.instructions import can_count, count_instructions
from tests.bench.line import BenchLine

REQUESTS = 128
"""As many as ``tests.bench.http.counted`` sends."""
AUDITED = {"POST, admin": "POST, audited", "GET, admin": "GET, audited"}
"""Kinds of calls without and with the audit log."""


def limit_lines() -> Iterator[BenchLine]:
    """Instructions of a request with quotas or with the audit log, and as the reference without."""
    if not can_count():
        return
    with tempfile.TemporaryDirectory() as name:
        counted = count_instructions(Path(name), "tests.bench.http.counted", "limits", env={})
    counts = {name: median(each) / REQUESTS for name, each in counted.items()}
    special = {*AUDITED, *AUDITED.values()}
    for kind in dict.fromkeys(name.rpartition(", ")[0] for name in counts):
        if kind not in special:
            yield _line(f"{kind}, quotas", counts[f"{kind}, on"], counts[f"{kind}, off"], "for comparison")
    for kind, audited in AUDITED.items():
        yield _line(f"{kind} port, audit log", counts[f"{audited}, off"], counts[f"{kind}, off"], "for comparison")


def _line(name: str, ours: float, reference: float, target: str) -> BenchLine:
    return BenchLine(name=name, ours=ours, reference=reference, unit="instr.", target=target, ratio=reference / ours)
