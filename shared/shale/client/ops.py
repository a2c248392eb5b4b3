"""Operations of a batch, comparisons of a transaction, lifetimes, and the result of a write."""

from dataclasses import field
from typing import NamedTuple

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import parse_duration_ms
from shale.core.ttl import NEVER, Timestamp, Ttl, timestamp_ms
from shale.errors import InvalidRequestError


class WriteResult(NamedTuple):
    """The sequence number of a commit, its time in milliseconds since 1970, and its number of rows."""

    seq: int
    create_ts: int | None
    rows: int = 1


class Compare(NamedTuple):
    """A condition of a transaction; use the class methods to make one."""

    item: tuple[str | bytes | int, ...]

    @classmethod
    def absent(cls, key: BytesLike) -> "Compare":
        """Require that the key does not exist."""
        return cls(("absent", bytes(key)))

    @classmethod
    def present(cls, key: BytesLike) -> "Compare":
        """Require that the key exists."""
        return cls(("present", bytes(key)))

    @classmethod
    def value(cls, key: BytesLike, value: BytesLike) -> "Compare":
        """Require that the key has this value."""
        return cls(("value", bytes(key), bytes(value)))

    @classmethod
    def seq(cls, key: BytesLike, seq: int) -> "Compare":
        """Require that the key was last written by this commit."""
        return cls(("seq", bytes(key), seq))


@dataclass(slots=True)
class Ops:
    """Writes of one commit, in order; every method returns the object itself, so that calls can be chained."""

    items: list[tuple[object, ...]] = field(default_factory=list)

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> "Ops":
        """Write a value."""
        return self._add("put", key, value, ttl, expire_at)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None
    ) -> "Ops":
        """Add an operand for the merge operator of the database."""
        return self._add("merge", key, operand, ttl, expire_at)

    def delete(self, key: BytesLike) -> "Ops":
        """Delete a key."""
        self.items.append(("delete", bytes(key)))
        return self

    def __len__(self) -> int:
        return len(self.items)

    def _add(self, kind: str, key: BytesLike, value: BytesLike, ttl: Ttl, expire_at: Timestamp | None) -> "Ops":
        life = expiry_field(ttl, expire_at)
        item = (kind, bytes(key), bytes(value))
        self.items.append(item if life is None else (*item, life))
        return self


def expiry_field(ttl: Ttl, expire_at: Timestamp | None) -> object:
    """Return the expiry field of a request body; ``None``: the default of the database.

    Raises:
        InvalidRequestError: both arguments are given, or one is invalid.
    """
    if ttl is not None and expire_at is not None:
        raise InvalidRequestError("ttl and expire_at: give only one of them")
    if expire_at is not None:
        return {"expire_at": timestamp_ms(expire_at, name="expire_at")}
    if ttl is None:
        return None
    return "never" if ttl is NEVER else parse_duration_ms(ttl, name="ttl")


def expiry_headers(ttl: Ttl, expire_at: Timestamp | None) -> dict[str, str]:
    """Return the expiry headers of a request; raises like ``expiry_field``."""
    match expiry_field(ttl, expire_at):
        case None:
            return {}
        case {"expire_at": timestamp}:
            return {"X-Shale-Expire-At": str(timestamp)}
        case text:
            return {"X-Shale-TTL-Ms": str(text)}
