"""Checks of the options of policies: all mistakes are found before the first is told."""

import math
from collections.abc import Iterable, Iterator

from shale.errors import InvalidRequestError


def refuse(*checks: Iterable[str]) -> None:
    """Raise if a check finds something.

    Raises:
        InvalidRequestError: with everything that was found.
    """
    problems = [problem for check in checks for problem in check]
    if problems:
        raise InvalidRequestError("; ".join(problems))


def source_count_problems(fewest: int, most: int, *, least_most: int = 1) -> Iterator[str]:
    """``min_compaction_sources`` and ``max_compaction_sources``, the latter with a bound of the policy's own."""
    if fewest < 1:
        yield f"min_compaction_sources must be at least 1, not {fewest}"
    if most < least_most:
        yield f"max_compaction_sources must be at least {least_most}, not {most}"
    if most < fewest:
        yield f"min_compaction_sources {fewest} must not be above max_compaction_sources {most}"


def ratio_problems(name: str, value: float, *, least: float) -> Iterator[str]:
    """A factor between sizes."""
    if not math.isfinite(value) or value < least:
        yield f"{name} must be at least {least:g}, not {value:g}"


def positive_problems(name: str, value: float | None) -> Iterator[str]:
    """A size, a duration or a count; ``None`` is absent."""
    if value is not None and not (math.isfinite(value) and value > 0):
        yield f"{name} must be above 0, not {value:g}"
