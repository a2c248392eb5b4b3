"""Delay between attempts of a compare-and-swap loop (docs/reference/protocol.md 0.3)."""

import random  # noqa: TID251 - only the type; the generator is injected

_FREE_CONFLICTS = 3
_FIRST_LIMIT_S = 0.05
_LIMIT_S = 1.0


def conflict_delay_s(conflicts: int, rng: random.Random) -> float:
    """Return the delay after so many conflicts in a row: none for three, then up to 50 ms, doubling.

    One process commits in every round, so a loop needs no limit; the delay only spreads contenders out.
    """
    if conflicts <= _FREE_CONFLICTS:
        return 0.0
    doublings = min(conflicts - _FREE_CONFLICTS - 1, 10)
    return min(_LIMIT_S, rng.uniform(0.0, _FIRST_LIMIT_S * 2**doublings))
