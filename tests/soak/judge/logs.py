"""Tracebacks and damage in the logs of processes."""

import json
from collections.abc import Iterable
from pathlib import Path

MARKS = ("Traceback (most recent call last)", "exception was never retrieved", "Fatal Python error")
CONTEXT = 1200
EVENTS = ("corruption", "panic")


def complaints(logs: Iterable[Path]) -> list[str]:
    """Return the first traceback of each log, and events that mean damage."""
    found = []
    for log in logs:
        text = log.read_text(errors="replace")
        at = min((text.find(mark) for mark in MARKS if mark in text), default=-1)
        if at >= 0:
            start = text.rfind("\n", 0, at) + 1
            found.append(f"{log.name}: {text[start : start + CONTEXT]}")
        found += [f"{log.name}: {line[:400]}" for line in text.splitlines() if _is_damage(line)][:2]
    return found


def _is_damage(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        event = str(json.loads(line).get("event", ""))
    except ValueError:
        return False
    return any(part in event for part in EVENTS)
