"""A generator that records the limits of delays and makes them zero."""

import random


class Draws(random.Random):
    """Returns the lower end of every range."""

    def __init__(self) -> None:
        super().__init__(1)
        self.limits: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.limits.append(b)
        return a


def doubling(count: int) -> list[float]:
    """Return the limits of the delays after the first three conflicts in a row, which cost none."""
    return [0.05 * 2 ** min(each, 10) for each in range(count)]
