"""Measured times of a run, printed and kept as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.kube.load.history import percentile
from tests.kube.processes import say


class Report:
    """Seconds by name; a name with several values is shown as median, 95th percentile and maximum."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._facts: dict[str, str] = {}

    def add(self, name: str, seconds: float) -> None:
        """Add one measurement and print it."""
        self._seconds.setdefault(name, []).append(round(seconds, 2))
        say(f"{name}: {seconds:.1f} s")

    def fact(self, name: str, text: str) -> None:
        """Add a result that is no time."""
        self._facts[name] = text
        say(f"{name}: {text}")

    def lines(self) -> list[str]:
        """Return the rows of a table."""
        return [f"| {name} | {show(values)} |" for name, values in self._seconds.items()] + [
            f"| {name} | {text} |" for name, text in self._facts.items()
        ]

    def save(self, file: Path) -> None:
        """Write everything as JSON."""
        file.write_text(json.dumps({"seconds": self._seconds, "facts": self._facts}, indent=1) + "\n")


def show(values: Sequence[float]) -> str:
    """Return seconds as text."""
    if len(values) == 1:
        return f"{values[0]:.1f} s"
    middle, high = percentile(values, 0.5), percentile(values, 0.95)
    return f"{middle:.1f} s median, {high:.1f} s p95, {max(values):.1f} s maximum of {len(values)}"
