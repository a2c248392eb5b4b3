"""How many seeds a simulated row gets.

``make test`` runs a few; ``SHALE_SIM_SEEDS=1000`` runs that many, ``SHALE_SIM_SEED=17`` replays one (``make sim``).
"""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_SEEDS = 8


def seeds(default: int = DEFAULT_SEEDS) -> list[int]:
    """The seeds to run: one, if it is named, or as many as were asked for."""
    chosen = os.environ.get("SHALE_SIM_SEED")
    if chosen:
        return [int(chosen)]
    return list(range(int(os.environ.get("SHALE_SIM_SEEDS") or default)))


def simulated(test: F) -> F:
    """Parametrise ``seed``."""
    marked: F = pytest.mark.parametrize("seed", seeds())(test)
    return marked


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Faults make thousands of warnings, which pytest would keep."""
    logger = logging.getLogger("shale")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _situations_come_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end of a module: every row has met what it is about (``tests.simulation.reached``)."""
    from tests.simulation.reached import rows_of

    rows = rows_of(request.module)
    for row in rows:
        row.forget()
    yield
    never = {row.name: row.missing() for row in rows if row.missing()}
    assert not never, f"situations that no seed has produced: {never}"
