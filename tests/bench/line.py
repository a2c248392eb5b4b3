"""One line of a benchmark's table (docs/concepts/architecture.md, "How it is proved")."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLine:
    """``ours`` and ``reference`` are in ``unit``; ``target`` says in words what must come out.

    ``ratio``: how many times better ours is, where it is not simply that of the two numbers.
    """

    name: str
    ours: float
    reference: float | None = None
    unit: str
    target: str
    ratio: float | None = None

    @classmethod
    def of_rounds(
        cls, name: str, ours: Sequence[float], reference: Sequence[float], *, unit: str, target: str
    ) -> "BenchLine":
        """A line of times that were measured in turn, round by round: medians, and the median of the rounds' ratios.

        Whatever slows a round down slows both of its halves, so their ratio varies less than either of them.
        """
        assert not unit.endswith("/s"), "of times, not of rates"
        ratio = median(theirs / mine for mine, theirs in zip(ours, reference, strict=True))
        return cls(name=name, ours=median(ours), reference=median(reference), unit=unit, target=target, ratio=ratio)

    def __str__(self) -> str:
        beside = "" if self.reference is None else f"  reference {self.reference:10.2f}  ratio {self._ratio():6.2f}"
        return f"{self.name:<58} {self.ours:10.2f} {self.unit:<8}{beside}  target: {self.target}"

    def _ratio(self) -> float:
        """How many times better ours is; rates grow, times shrink."""
        if self.ratio is not None:
            return self.ratio
        assert self.reference is not None
        return self.ours / self.reference if self.unit.endswith("/s") else self.reference / self.ours


def seconds(work: Callable[[], object], rounds: int = 7) -> float:
    """Median time of one call, after one that does not count."""
    return _median_of(perf_counter, work, rounds)


def cpu_seconds(work: Callable[[], object], rounds: int = 7) -> float:
    """Median CPU time of one call, after one that does not count: one core's rate, independent of other load."""
    return _median_of(process_time, work, rounds)


def _median_of(clock: Callable[[], float], work: Callable[[], object], rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        start = clock()
        work()
        times.append(clock() - start)
    return median(times)
