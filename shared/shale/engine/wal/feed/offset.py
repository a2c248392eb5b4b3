"""The position of a feed in the WAL, and the places where it can start."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self, TypeGuard

from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import format_value, parse_integer
from shale.errors import InvalidRequestError
from shale.types import U64_MAX


@dataclass(frozen=True, slots=True)
class FeedOffset:
    """The feed has returned the files up to ``wal_id`` and every change up to ``seq``.

    ``is_inside``: the next file also holds changes up to ``seq``, which the feed skips.  If it is false, a next file
    that begins at or below ``seq`` is an error.
    """

    wal_id: int
    seq: int
    is_inside: bool = False

    def __post_init__(self) -> None:
        assert self.wal_id >= 0
        assert self.seq >= 0

    def to_json(self) -> dict[str, int | bool]:
        """Return the offset as a JSON object; the reverse of ``from_json``."""
        plain: dict[str, int | bool] = {"wal_id": self.wal_id, "seq": self.seq}
        return {**plain, "inside": True} if self.is_inside else plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Parse the result of ``to_json``.

        Raises:
            InvalidRequestError: it is not an offset.
        """
        wal_id, seq, inside = stored.get("wal_id"), stored.get("seq"), stored.get("inside", False)
        if not _is_u64(wal_id) or not _is_u64(seq) or not isinstance(inside, bool) or len(stored) > 3:
            raise InvalidRequestError(f"{dict(stored)!r} is not an offset of a change feed")
        return cls(wal_id, seq, inside)


def _is_u64(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX


class Edge(StrEnum):
    """The two ends of the WAL."""

    LATEST = "latest"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class FromSeq:
    """The change with this sequence number, or the first one above it."""

    seq: int


FeedStart = Edge | FromSeq


def parse_start(text: str | int) -> FeedStart:
    """Parse ``latest``, ``earliest``, ``seq:<n>`` or a bare number.

    Raises:
        InvalidRequestError: the text is none of these.
    """
    plain = str(text).strip().lower()
    if plain in {edge.value for edge in Edge}:
        return Edge(plain)
    digits = plain.removeprefix("seq:")
    if digits.isascii() and digits.isdigit():
        return FromSeq(parse_integer(digits, name="start"))
    raise InvalidRequestError(f"start: {format_value(text)} is none of latest, earliest, seq:<number>")
