"""A token bucket, which limits a rate."""


class TokenBucket:
    """A bucket that holds what may be used in one second, and is full at first.

    It may be used while it is not empty, also for more than it holds; later uses then wait until that is refilled.  So
    a rate below one per second works, and so does one request that is larger than a second's share.

    Args:
        rate: the refill per second; 0: never empty.
        now_s: monotonic time.
    """

    __slots__ = ("_level", "_rate", "_seen_s")

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._level = rate
        self._seen_s = now_s

    def wait_s(self, now_s: float) -> float | None:
        """Return ``None`` if the bucket may be used now, otherwise the seconds until then."""
        if not self._rate:
            return None
        self._refill(now_s)
        return None if self._level > 0 else -self._level / self._rate

    def take(self, amount: float) -> None:
        """Use an amount, also if there is less."""
        if self._rate:
            self._level -= amount

    def set_rate(self, rate: float, now_s: float) -> None:
        """Change the rate; one that had no limit is full, and another one keeps its level."""
        self._refill(now_s)
        self._level = min(self._level, rate) if self._rate else rate
        self._rate = rate

    def _refill(self, now_s: float) -> None:
        self._level = min(self._rate, self._level + (now_s - self._seen_s) * self._rate)
        self._seen_s = now_s
