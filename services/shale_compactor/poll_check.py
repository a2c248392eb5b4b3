"""Ready means: the loop that looks for work has looked lately (docs/operations.md 10)."""

from collections.abc import Callable

from shale.env import Clock
from shale.service.health import OK, Check, Verdict

_POLLS_MISSED_MAX = 3
_SILENCE_MIN_S = 5.0


def poll_check(clock: Clock, last_poll_s: Callable[[], float | None], interval_s: float) -> Check:
    """Ready while the last look is younger than three intervals; the time before the first one counts from now."""
    started_s = clock.monotonic_s()
    limit_s = max(_POLLS_MISSED_MAX * interval_s, _SILENCE_MIN_S)

    def check() -> Verdict:
        last_s = last_poll_s()
        age_s = clock.monotonic_s() - (last_s if last_s is not None else started_s)
        return OK if age_s < limit_s else Verdict(ok=False, message=f"no poll for {age_s:.0f} s")

    return check
