"""What commands write rows to, and changes of rows."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class RowChange(NamedTuple):
    """A put, or a deletion if ``value`` is ``None``.  ``expire_ms``: since 1970."""

    key: bytes
    value: bytes | None
    expire_ms: int | None = None
    ttl: str | None = None


class RowCommit(Protocol):
    """A commit that may not be durable yet."""

    @property
    def seq(self) -> int:
        """Its sequence number."""
        ...

    async def durable(self) -> None:
        """Wait until it is in the WAL."""
        ...


class RowWriter(Protocol):
    """What a command writes rows to.  ``rows_at_once``: rows of a commit at which its overhead does not matter."""

    rows_at_once: int

    @property
    def epoch(self) -> int | None:
        """The epoch of the writer, if this process is the writer."""
        ...

    async def write(self, changes: Sequence[RowChange]) -> RowCommit:
        """Apply changes in one commit."""
        ...

    async def is_stored(self, row: RowChange) -> bool:
        """Return whether the database has this row, also its lifetime; ``False`` if that is not known."""
        ...

    def scan_keys(self, prefix: bytes) -> AsyncIterator[list[bytes]]:
        """Yield the keys with a prefix, some at a time."""
        ...
