"""Rows of the fault catalogue, and whether their simulations ever reach the situations they test.

A row whose fault never hits proves nothing.  So a row names its situations, notes the ones that a seed has met, and
fails at the end of its module if enough seeds ran and one of them never came up::

    @row("a claim lost to the coordinator", "the coordinator lost to a claim")
    def test_a_claim_that_races_with_the_coordinator_leaves_one_owner(seed: int, reached: Reached) -> None:
        ...
        reached("a claim lost to the coordinator", when=...)

The decorated function takes the seed alone, so other tests may run it too.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType

from shale.testing.simulation import STORE_VARIABLE
from shale.types import CasMode
from tests.simulation.conftest import DEFAULT_SEEDS, simulated

ENOUGH_SEEDS = 32
"""A situation that a quarter of the seeds produce is missed by that many once in ten thousand times."""
TWO_PHASE_FACTOR = 4
"""Creates of several requests leave less time for the rest: some situations take more seeds."""


def is_two_phase() -> bool:
    """Return whether simulations of this process make two-phase creates."""
    return os.environ.get(STORE_VARIABLE) == CasMode.TWO_PHASE


class CoverageMarks:
    """The situations that one row has reached over all seeds of this process."""

    def __init__(self, name: str, situations: Iterable[str], within: int) -> None:
        self.name = name
        self.situations = tuple(situations)
        self.within = within
        self.seeds = 0
        self.met: Counter[str] = Counter()

    def __call__(self, situation: str, *, when: bool = True) -> None:
        """Record that a seed has reached a situation."""
        assert situation in self.situations, f"{self.name} does not name {situation!r}"
        if when:
            self.met[situation] += 1

    def missing(self) -> list[str]:
        """Return the situations that enough seeds should have reached and did not."""
        if self.seeds < (TWO_PHASE_FACTOR * self.within if is_two_phase() else self.within):
            return []
        return [situation for situation in self.situations if not self.met[situation]]

    def forget(self) -> None:
        """Clear the record."""
        self.seeds = 0
        self.met.clear()


Row = Callable[[int, CoverageMarks], None]


def row(
    *situations: str, within: int = ENOUGH_SEEDS, default: int = DEFAULT_SEEDS
) -> Callable[[Row], Callable[[int | range], None]]:
    """Parametrise ``seed``; ``within`` seeds together must reach every situation, fewer need not.

    ``default``: how many run without an option (``FEW_SEEDS`` where each takes a second or more).
    """

    def decorate(test: Row) -> Callable[[int | range], None]:
        reached = CoverageMarks(test.__name__, situations, within)

        def run(seed: int) -> None:
            reached.seeds += 1
            test(seed, reached)

        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        marked = simulated(run, default)
        marked.reached = reached  # type: ignore[attr-defined]
        return marked

    return decorate


def rows_of(module: ModuleType) -> list[CoverageMarks]:
    """Return the rows that a module defines."""
    own = [test for test in vars(module).values() if getattr(test, "__module__", None) == module.__name__]
    return [test.reached for test in own if hasattr(test, "reached")]
