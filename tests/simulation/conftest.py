"""The number of seeds of a simulated test.

``make test`` runs a few; ``SHALE_SIM_SEEDS=1000`` runs that many, ``SHALE_SIM_SEED=17`` replays one (``make sim``).
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from shale.testing.simulation import STORE_VARIABLE
from shale.types import CasMode

DEFAULT_SEEDS = 4
FEW_SEEDS = 2
"""Of a row whose seeds take a second or more each."""
SEEDS_PER_CASE = 50
"""Of a deep run: pytest keeps some kilobytes about every case until the end."""

Test = Callable[..., object]


def seeds(default: int = DEFAULT_SEEDS) -> list[int]:
    """Return the seeds to run: the selected one, or the requested number."""
    chosen = os.environ.get("SHALE_SIM_SEED")
    if chosen:
        return [int(chosen)]
    return list(range(int(os.environ.get("SHALE_SIM_SEEDS") or default)))


def simulated(test: Test, default: int = DEFAULT_SEEDS) -> Callable[..., None]:
    """Parametrise ``seed``: a few seeds are a case each, many are run in blocks that stop at the first failure."""

    @wraps(test)
    def run(seed: int | range, **others: Any) -> None:
        for each in seed if isinstance(seed, range) else (seed,):
            try:
                test(each, **others)
            except BaseException as error:
                error.add_note(f"seed {each}: make sim SEED={each}")
                raise

    marked: Callable[..., None] = pytest.mark.parametrize("seed", _cases(seeds(default)))(run)
    return marked


def simulated_slowly(test: Test) -> Callable[..., None]:
    """Parametrise ``seed`` for tests that take a second or more per seed: by default with fewer seeds."""
    return simulated(test, FEW_SEEDS)


def _cases(chosen: list[int]) -> list[Any]:
    if len(chosen) <= SEEDS_PER_CASE:
        return list(chosen)
    blocks = [chosen[start : start + SEEDS_PER_CASE] for start in range(0, len(chosen), SEEDS_PER_CASE)]
    ranges = [range(block[0], block[-1] + 1) for block in blocks]
    return [pytest.param(block, id=f"{block.start}-{block.stop - 1}") for block in ranges]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that mean conditional writes of the store."""
    config.addinivalue_line("markers", "native_only(reason): the fault cannot happen with two-phase creates")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip such a test in simulations with two-phase creates."""
    mark = item.get_closest_marker("native_only")
    if mark is not None and os.environ.get(STORE_VARIABLE) == CasMode.TWO_PHASE:
        pytest.skip(f"native only: {mark.args[0]}")


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Drop the thousands of warnings that faults cause, which pytest would keep."""
    logger = logging.getLogger("shale")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _situations_come_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check at the end of a module that every test reached its situations (``tests.simulation.coverage_marks``)."""
    from tests.simulation.coverage_marks import rows_of

    rows = rows_of(request.module)
    for row in rows:
        row.forget()
    yield
    never = {row.name: row.missing() for row in rows if row.missing()}
    assert not never, f"situations that no seed has produced: {never}"
