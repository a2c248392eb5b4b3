"""One row, as callers see it, and the flags that rows carry on disk (docs/reference/format.md 7.1)."""

from typing import NamedTuple

FLAG_TOMBSTONE = 0x01
FLAG_EXPIRE_TS = 0x02
FLAG_CREATE_TS = 0x04
FLAG_MERGE = 0x08
FLAGS_KNOWN = 0x0F


class Row(NamedTuple):
    """A value with its sequence number and times, in milliseconds since 1970."""

    key: bytes
    value: bytes
    seq: int
    create_ts: int | None = None
    expire_ts: int | None = None


class Entry(NamedTuple):
    """A row as it is stored: also a tombstone or a merge operand.  ``value`` of a tombstone is empty."""

    key: bytes
    value: bytes
    seq: int
    flags: int
    create_ts: int = 0
    expire_ts: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Whether the row deletes its key."""
        return bool(self.flags & FLAG_TOMBSTONE)

    @property
    def is_merge(self) -> bool:
        """Whether the value is an operand for the merge operator."""
        return bool(self.flags & FLAG_MERGE)
