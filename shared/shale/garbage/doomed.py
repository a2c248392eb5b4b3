"""What plans name: objects that may go, and why, in words for people."""

from dataclasses import dataclass
from typing import NamedTuple

from shale.garbage.options import Task

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


class Doomed(NamedTuple):
    """An object that a sweep found: its number or ULID, its key, its bytes, when it was made."""

    id: int
    key: str
    size: int
    made_ms: int


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object that may be deleted, or a parent that may be released (then ``key`` is its path)."""

    resource: Task
    key: str
    size: int
    age_ms: int
    why: str
    boundary: int | None = None

    @property
    def reason(self) -> str:
        """For example ``unreferenced, 3 h old, boundary 1204``."""
        parts = [self.why, f"{age_text(self.age_ms)} old"]
        if self.boundary is not None:
            parts.append(f"boundary {self.boundary}")
        return ", ".join(parts)


def age_text(age_ms: int) -> str:
    """An age in its largest unit: ``3 h``."""
    for unit, size_ms in _UNITS:
        if age_ms >= size_ms:
            return f"{age_ms // size_ms} {unit}"
    return f"{max(age_ms, 0)} ms"
