"""Limits per address of a client: failed attempts to authenticate, and open connections.

Valid tokens are taken from every address: many clients may share one, such as that of a proxy, and a random token
cannot be guessed at any rate.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from math import ceil

ADDRESSES_MAX = 10_000
"""Of more addresses with failures, those that have failed least recently are forgotten: a megabyte or two."""

MINUTE_S = 60.0


class FailedAttempts:
    """Counts failed attempts by address, and tells which ones have to wait.

    Args:
        per_minute: attempts of one address that get a full answer; 0: no limit.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def failed(self, address: str, now_s: float) -> int | None:
        """Count an attempt.

        Args:
            address: of the client.
            now_s: monotonic time.

        Returns:
            ``None``, or the seconds that the client has to wait before the next attempt, at least 1.
        """
        if not self._per_minute:
            return None
        network = network_of(address)
        rate = self._per_minute / MINUTE_S
        used, seen_s = self._used.pop(network, (0.0, now_s))
        used = max(0.0, used - (now_s - seen_s) * rate)
        is_over = used + 1 > self._per_minute
        self._used[network] = (used if is_over else used + 1, now_s)
        if len(self._used) > ADDRESSES_MAX:
            self._used.popitem(last=False)
        return max(1, ceil((used + 1 - self._per_minute) / rate)) if is_over else None


class ConnectionCounts:
    """Counts open connections by address; those of an IPv6 network together, see ``network_of``.

    Args:
        limit: connections of one address.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[str, int] = {}
        self.total = 0
        """The open connections of all addresses."""

    def opened(self, address: str) -> bool:
        """Count a connection; return whether it is within the limit.  ``closed`` follows in both cases."""
        network = network_of(address)
        count = self._open[network] = self._open.get(network, 0) + 1
        self.total += 1
        return count <= self.limit

    def count(self, address: str) -> int:
        """Return how many connections of an address are open."""
        return self._open.get(network_of(address), 0)

    def closed(self, address: str) -> None:
        """Forget a connection."""
        network = network_of(address)
        count = self._open.pop(network, 1) - 1
        self.total -= 1
        if count:
            self._open[network] = count


def network_of(address: str) -> str:
    """Return what one client has: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped) if found.ipv4_mapped else found.exploded[:19]
