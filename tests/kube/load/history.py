"""What a client wrote and what came of it, and what a database must hold after it."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["acknowledged", "unknown", "rejected"]


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a client; ``start`` and ``end`` are seconds of one monotonic clock."""

    client: int
    number: int
    key: str
    outcome: Outcome
    start: float
    end: float

    @property
    def value(self) -> str:
        """What the write puts: every value is written once."""
        return f"{self.client}/{self.number}"


def own_key(client: int, number: int) -> str:
    """Return a key that is written once."""
    return f"once/{client}/{number:08d}"


def shared_key(client: int) -> str:
    """Return the key that a client overwrites."""
    return f"newest/{client}"


def append(file: Path, write: Write) -> None:
    """Add a write to a history; a history that breaks off has whole lines only, except the last."""
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(write)) + "\n")


def load(file: Path) -> list[Write]:
    """Read a history."""
    return [Write(**json.loads(line)) for line in file.read_text().splitlines()]


def differences(history: Iterable[Write], rows: Mapping[str, str]) -> list[str]:
    """Compare rows with the writes of all clients, of which each wrote one after the other.

    A write with the outcome "unknown" may have happened, but not after a later one that was acknowledged.
    """
    found = []
    written: dict[str, list[Write]] = {}
    for write in history:
        written.setdefault(write.key, []).append(write)
    for key, writes in sorted(written.items()):
        newest = max((write.number for write in writes if write.outcome == "acknowledged"), default=0)
        allowed = {write.value for write in writes if write.outcome != "rejected" and write.number >= newest}
        value = rows.get(key)
        if value is None and newest:
            found.append(f"{key}: write {newest} was acknowledged; the row is missing")
        elif value is not None and value not in allowed:
            found.append(f"{key} is {value}; only {sorted(allowed)} may be there")
    found += [f"{key}: nothing wrote it" for key in sorted(set(rows) - set(written))]
    return found


def longest_gap(history: Iterable[Write], start: float, end: float) -> float:
    """Return the longest time in seconds without an acknowledgement, of all clients, from ``start`` to ``end``."""
    times = sorted(write.end for write in history if write.outcome == "acknowledged" and start <= write.end <= end)
    points = [start, *times, end]
    return max(after - before for before, after in itertools.pairwise(points))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
