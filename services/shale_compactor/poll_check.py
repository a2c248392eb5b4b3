"""Readiness check of a polling loop (docs/reference/health.md)."""

from collections.abc import Callable

from shale.env import Clock
from shale.service.health import OK, Check, HealthCheckResult

_POLLS_MISSED_MAX = 3
_SILENCE_MIN_S = 5.0


def poll_check(clock: Clock, last_poll_s: Callable[[], float | None], interval_s: float) -> Check:
    """Return a check that is ready while the last poll is younger than three intervals."""
    started_s = clock.monotonic_s()
    limit_s = max(_POLLS_MISSED_MAX * interval_s, _SILENCE_MIN_S)

    def check() -> HealthCheckResult:
        last_s = last_poll_s()
        age_s = clock.monotonic_s() - (last_s if last_s is not None else started_s)
        return OK if age_s < limit_s else HealthCheckResult(ok=False, message=f"no poll for {age_s:.0f} s")

    return check
