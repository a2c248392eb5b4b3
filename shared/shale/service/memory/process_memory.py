"""The memory of a process: its account, and the budgets of what clients have not read yet."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import anyio

from shale.concurrency.byte_budget import WAIT_MAX_S, ByteBudget, TaskShares
from shale.core.memory_account import MemoryAccount, MemoryPart
from shale.errors import ResponseTooLarge, UnavailableError
from shale.service.memory.connection_memory import connection_bytes
from shale.service.memory.unread_responses import UnreadResponses
from shale.sst.budget import LARGE_VALUE_BYTES

T = TypeVar("T")

_UNBOUNDED_BYTES = 1 << 60
_SCAN_BYTES_MAX = 32 << 20
"""What a scan of several sources holds: two reads of 4 MiB of each, and merged rows."""
_SCANS_AT_ONCE = 4
_READS_OF_SCAN = 8
_READ_AHEAD_MAX, _READ_AHEAD_MIN = 4 << 20, 64 << 10
_PIECE_MAX, _PIECE_MIN, _PIECES = 1 << 20, 16 << 10, 64
"""The more responses wait, the smaller are the pieces, so that there is always room for another one."""
_UNSIZED_PART, _UNSIZED_MIN = 8, 32 << 10
"""Of the memory of responses, the part for reads whose size is unknown, and what each may have without waiting."""
_TRANSACTIONS_AT_ONCE = 512


class ProcessMemory:
    """The account of a process, and the budgets of its responses and scans; by default memory is never full.

    Args:
        account: of the process.
        response_bytes: memory for responses that are not sent and for scans, on all ports together; half for each.
    """

    def __init__(self, account: MemoryAccount | None = None, response_bytes: int = _UNBOUNDED_BYTES) -> None:
        self.account = MemoryAccount(_UNBOUNDED_BYTES) if account is None else account
        self.responses = ByteBudget(response_bytes // 2)
        """Bytes that are not sent."""
        self.unread = UnreadResponses(self.responses, self.account)
        """What connections hold of responses that were made."""
        self.scans = ByteBudget(response_bytes // 2)
        """What scans read ahead."""
        self.large_values = TaskShares(self.responses)
        """Large values, from before they are read until the task that reads them has sent them."""
        scanned = ByteBudget(response_bytes // 2)
        self.scanned_values = TaskShares(scanned)
        """Large values that scans hold, one of each source; a scan that needs more than all waits for the others."""
        self._unsized = ByteBudget(max(LARGE_VALUE_BYTES, response_bytes // _UNSIZED_PART))
        self.account.add_meter(MemoryPart.RESPONSES, lambda: self.responses.used_bytes + self._unsized.used_bytes)
        self.account.add_meter(MemoryPart.SCANS, lambda: self.scans.used_bytes + scanned.used_bytes)

    @property
    def scan_bytes(self) -> int:
        """The share of one scan that is being read."""
        return min(_SCAN_BYTES_MAX, self.scans.capacity_bytes // _SCANS_AT_ONCE)

    @property
    def read_ahead_bytes(self) -> int | None:
        """The size of one read of a scan; ``None``: that of the database, as memory is not scarce."""
        size_bytes = self.scan_bytes // _READS_OF_SCAN
        return max(_READ_AHEAD_MIN, size_bytes) if size_bytes < _READ_AHEAD_MAX else None

    @property
    def unsized_reply_bytes(self) -> int:
        """What each transaction keeps of its replies before it knows their size and waits for memory."""
        return max(_UNSIZED_MIN, min(LARGE_VALUE_BYTES, self.responses.capacity_bytes // _TRANSACTIONS_AT_ONCE))

    async def read_unsized(self, read: Callable[[int], Awaitable[T]]) -> T:
        """Read values whose size is unknown: at most 1 MiB, as long as memory has room for so much.

        A read holds values while it gives way to others, so all such reads together have a budget.  They have it for a
        short time: one that needs memory for large values, too, does not wait for it.

        Args:
            read: gets how many bytes the values may have; it is called once more if others have the memory at first.

        Raises:
            ResponseTooLarge: the values have more than 1 MiB, or need memory that others have.
            UnavailableError: there was no memory for too long.
        """
        with self._unsized.share() as share, self.large_values.without_waiting():
            if not share.try_take(LARGE_VALUE_BYTES):
                with suppress(ResponseTooLarge):
                    return await read(_UNSIZED_MIN)
                with anyio.move_on_after(WAIT_MAX_S) as wait:
                    await share.take(LARGE_VALUE_BYTES)
                if wait.cancelled_caught:
                    raise UnavailableError(f"no memory for the values within {WAIT_MAX_S:g} s; try again")
            return await read(LARGE_VALUE_BYTES)

    def count_connections(self, open_count: Callable[[], int], *, tls: bool) -> None:
        """Count the open connections of a port in the account.

        Args:
            open_count: returns how many there are.
            tls: whether they have TLS.
        """
        self.account.add_meter(MemoryPart.CONNECTIONS, lambda: open_count() * connection_bytes(tls=tls))

    def release_values(self) -> None:
        """Give back the memory of large values that the present task has read."""
        self.large_values.release()
        self.scanned_values.release()

    def piece_bytes(self) -> int:
        """Return the size of the next piece of a response."""
        return max(_PIECE_MIN, min(_PIECE_MAX, self.responses.free_bytes // _PIECES))
