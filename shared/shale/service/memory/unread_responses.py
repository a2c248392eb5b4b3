"""What clients have not read of their responses; if it is too much, those that keep most of it are dropped."""

from collections.abc import Callable

from shale.concurrency.byte_budget import ByteBudget
from shale.core.memory_account import MemoryAccount


class UnreadResponses:
    """The unread bytes of all connections of a process, as a part of its memory for responses.

    A response of up to 1 MiB does not wait for memory, because one that is read at once needs it only for moments.  So
    clients that read nothing may exceed the budget; then connections end until it is enough.

    Args:
        budget: the memory for responses.
        account: counts the connections that end.
    """

    def __init__(self, budget: ByteBudget, account: MemoryAccount) -> None:
        self._budget = budget
        self._account = account
        self._shares: dict[UnreadShare, int] = {}
        """What each connection has not read; the one that began to wait first comes first."""
        self._total_bytes = 0

    def share(self, drop: Callable[[], object]) -> "UnreadShare":
        """Return the share of one connection, which is empty.

        Args:
            drop: ends the connection at once.
        """
        return UnreadShare(self, drop)

    def count(self, share: "UnreadShare", size_bytes: int) -> None:
        """Replace what one connection has not read."""
        before = self._shares.pop(share, 0)
        self._total_bytes += size_bytes - before
        self._budget.give_back(before)
        self._budget.note(size_bytes)
        if size_bytes:
            self._shares[share] = size_bytes
            while self._total_bytes > self._limit_bytes and len(self._shares) > 1:
                self._drop_one()

    @property
    def _limit_bytes(self) -> int:
        """Half of the memory if large values wait for the other half."""
        capacity_bytes = self._budget.capacity_bytes
        return capacity_bytes // 2 if self._budget.is_contended else capacity_bytes

    def _drop_one(self) -> None:
        """Drop the connection that has waited longest of those that keep at least half the mean, but not the newest.

        A client that reads at once keeps a whole response for a moment, and others much less each.  Only if the newest
        keeps more than half of the limit it is dropped.
        """
        newest = next(reversed(self._shares))
        share = newest
        if self._shares[newest] <= self._limit_bytes // 2:
            half_bytes = self._total_bytes / len(self._shares) / 2
            share = next(
                share for share, size_bytes in self._shares.items() if size_bytes >= half_bytes and share is not newest
            )
        self.count(share, 0)
        self._account.dropped_connections += 1
        share.drop()


class UnreadShare:
    """What one connection has not read.

    Args:
        responses: those of all connections.
        drop: ends the connection at once.
    """

    __slots__ = ("_responses", "drop")

    def __init__(self, responses: UnreadResponses, drop: Callable[[], object]) -> None:
        self._responses = responses
        self.drop = drop

    def count(self, size_bytes: int) -> None:
        """Replace what it has not read; this may end the connection, or others."""
        self._responses.count(self, size_bytes)
