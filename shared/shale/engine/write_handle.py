"""What a write returns: its place in history, and the way to wait until it is durable."""

from collections.abc import Awaitable
from typing import Any, Protocol


class Durability(Protocol):
    """Who can bring a write to the store."""

    def durable(self, seq: int) -> Awaitable[None]:
        """Return once everything up to ``seq`` is durable."""
        ...


class WriteHandle:
    """A write that is in memory and readable.  ``create_ts`` is its commit time in milliseconds."""

    __slots__ = ("_durability", "create_ts", "seq")

    def __init__(self, seq: int, create_ts: int, durability: Durability) -> None:
        self.seq = seq
        self.create_ts = create_ts
        self._durability = durability

    def __reduce__(self) -> Any:
        raise TypeError("a write handle belongs to its process and cannot be pickled: its seq can")

    async def durable(self) -> None:
        """Return once the write is in the WAL (with the WAL disabled: in the manifest).

        Raises:
            FencedError: another writer took over; whether the write survives is unknown.
            ShaleError: the writer failed otherwise; the outcome is unknown as well.
        """
        await self._durability.durable(self.seq)

    def __repr__(self) -> str:
        return f"WriteHandle(seq={self.seq}, create_ts={self.create_ts})"
