"""Where a reader of the WAL stands, and where it may begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeGuard

from shale.engine.settings_values import parse_whole, show_value
from shale.errors import InvalidRequestError
from shale.types import U64_MAX


@dataclass(frozen=True, slots=True)
class FeedOffset:
    """Everything up to here has been given: the files up to ``wal_id``, and every change up to ``seq``.

    ``is_inside``: the next file holds changes up to ``seq`` too, which were given or are not wanted.  Otherwise a next
    file that begins at or below ``seq`` contradicts the ones before it.
    """

    wal_id: int
    seq: int
    is_inside: bool = False

    def __post_init__(self) -> None:
        assert self.wal_id >= 0
        assert self.seq >= 0

    def to_json(self) -> dict[str, int | bool]:
        """Plain numbers, to be stored; see ``from_json``."""
        plain: dict[str, int | bool] = {"wal_id": self.wal_id, "seq": self.seq}
        return {**plain, "inside": True} if self.is_inside else plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` made.

        Raises:
            InvalidRequestError: it is not an offset of this feed.
        """
        wal_id, seq, inside = stored.get("wal_id"), stored.get("seq"), stored.get("inside", False)
        if not _is_u64(wal_id) or not _is_u64(seq) or not isinstance(inside, bool) or len(stored) > 3:
            raise InvalidRequestError(f"{dict(stored)!r} is not an offset of a change feed")
        return cls(wal_id, seq, inside)


def _is_u64(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX


class Edge(StrEnum):
    """The two ends of what the WAL holds."""

    LATEST = "latest"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class FromSeq:
    """The change with this sequence number, or the first one above it."""

    seq: int


FeedStart = Edge | FromSeq


def parse_start(text: str | int) -> FeedStart:
    """Read ``latest``, ``earliest``, ``seq:<n>`` or a bare number.

    Raises:
        InvalidRequestError: none of these.
    """
    plain = str(text).strip().lower()
    if plain in {edge.value for edge in Edge}:
        return Edge(plain)
    digits = plain.removeprefix("seq:")
    if digits.isascii() and digits.isdigit():
        return FromSeq(parse_whole(digits, name="start"))
    raise InvalidRequestError(f"start: {show_value(text)} is none of latest, earliest, seq:<number>")
