"""What a checker finds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.soak.history.operation import Operation

SHOWN_MAX = 12


@dataclass(frozen=True)
class Anomaly:
    """A difference between what clients saw and what is promised."""

    kind: str
    where: str
    text: str
    operations: tuple[Operation, ...] = ()

    @classmethod
    def of(cls, kind: str, where: str, text: str, operations: Sequence[Operation] = ()) -> "Anomaly":
        """Make an anomaly with the first of the operations involved."""
        return cls(kind, where, text, tuple(operations[:SHOWN_MAX]))


@dataclass
class Findings:
    """What one or more checks found, and how much they covered."""

    anomalies: list[Anomaly] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    """Partitions for which the limit of steps was reached."""
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Findings") -> None:
        """Take over what another check found."""
        self.anomalies += other.anomalies
        self.undecided += other.undecided
        for name, count in other.counts.items():
            self.count(name, count)

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + number
