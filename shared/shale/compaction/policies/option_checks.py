"""Checks of options that report all mistakes at once."""

import math
from collections.abc import Iterable, Iterator

from shale.errors import InvalidRequestError


def refuse(*checks: Iterable[str]) -> None:
    """Raise if any check yields a problem.

    Raises:
        InvalidRequestError: names all problems.
    """
    problems = [problem for check in checks for problem in check]
    if problems:
        raise InvalidRequestError("; ".join(problems))


def source_count_problems(fewest: int, most: int, *, least_most: int = 1) -> Iterator[str]:
    """Check ``min_compaction_sources`` and ``max_compaction_sources``; ``least_most``: lower bound of the latter."""
    if fewest < 1:
        yield f"min_compaction_sources must be at least 1, not {fewest}"
    if most < least_most:
        yield f"max_compaction_sources must be at least {least_most}, not {most}"
    if most < fewest:
        yield f"min_compaction_sources {fewest} must not be above max_compaction_sources {most}"


def ratio_problems(name: str, value: float, *, least: float) -> Iterator[str]:
    """Check a ratio, which must be finite and at least ``least``."""
    if not math.isfinite(value) or value < least:
        yield f"{name} must be at least {least:g}, not {value:g}"


def positive_problems(name: str, value: float | None) -> Iterator[str]:
    """Check a size, duration or count, which must be finite and positive; ``None`` is allowed."""
    if value is not None and not (math.isfinite(value) and value > 0):
        yield f"{name} must be above 0, not {value:g}"
