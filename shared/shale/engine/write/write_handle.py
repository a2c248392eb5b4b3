"""Write handles, and what the write pipeline tells its owner."""

from collections.abc import Awaitable
from typing import Any, NoReturn, Protocol

from shale.errors import WrongType


class DurabilityWaiter(Protocol):
    """Waits until writes are durable."""

    def durable(self, seq: int) -> Awaitable[None]:
        """Return once all rows up to ``seq`` are durable."""
        ...


class WriteListener(DurabilityWaiter, Protocol):
    """Learns of changes in the write pipeline.  Its methods run inside a write, so they must not wait."""

    def on_rows_pending(self) -> None:
        """The first rows since a WAL flush are about to be written: start the timer of the next flush."""
        ...

    def on_wal_file_pending(self) -> None:
        """The rows of a WAL file are complete: upload it."""
        ...

    def on_wal_flush_requested(self) -> None:
        """A flush to L0 waits until its rows are in the WAL."""
        ...

    def on_memtable_frozen(self) -> None:
        """A frozen memtable waits for its flush."""
        ...

    def on_memtables_changed(self) -> None:
        """Reads must see another list of memtables."""
        ...


class WriteHandle:
    """A write that is in memory and visible to reads.  ``create_ts`` is its commit time in milliseconds."""

    __slots__ = ("_waiter", "create_ts", "seq")

    def __init__(self, seq: int, create_ts: int, waiter: DurabilityWaiter) -> None:
        self.seq = seq
        self.create_ts = create_ts
        self._waiter = waiter

    def __reduce__(self) -> Any:
        raise TypeError("a write handle belongs to its process and cannot be pickled: its seq can")

    def __await__(self) -> NoReturn:
        raise WrongType(
            "a write handle was awaited: the write is in memory already; "
            "`await handle.durable()` returns when it is durable"
        )

    async def durable(self) -> None:
        """Return once the write is in the WAL (with the WAL disabled: in the manifest).

        Raises:
            FencedError: another writer took over; it is unknown whether the write survives.
            ShaleError: the writer failed; it is unknown whether the write survives.
        """
        await self._waiter.durable(self.seq)

    def __repr__(self) -> str:
        return f"WriteHandle(seq={self.seq}, create_ts={self.create_ts})"
