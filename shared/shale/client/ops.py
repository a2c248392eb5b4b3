"""What callers say: operations of a batch, compares of a transaction, lifetimes; and what a write answers."""

from dataclasses import dataclass, field
from typing import NamedTuple

from shale.engine.batch import BytesLike
from shale.engine.lifetime import NEVER, Moment, Ttl, moment_ms
from shale.engine.settings_values import parse_duration_ms
from shale.errors import InvalidRequestError


class Written(NamedTuple):
    """Where a write stands in history; ``create_ts`` is its commit time in milliseconds since 1970."""

    seq: int
    create_ts: int | None
    rows: int = 1


class Compare(NamedTuple):
    """What must hold for a transaction to write; made by the class methods."""

    item: tuple[str | bytes | int, ...]

    @classmethod
    def absent(cls, key: BytesLike) -> "Compare":
        """The key has no value."""
        return cls(("absent", bytes(key)))

    @classmethod
    def present(cls, key: BytesLike) -> "Compare":
        """The key has a value."""
        return cls(("present", bytes(key)))

    @classmethod
    def value(cls, key: BytesLike, value: BytesLike) -> "Compare":
        """The key has this value."""
        return cls(("value", bytes(key), bytes(value)))

    @classmethod
    def seq(cls, key: BytesLike, seq: int) -> "Compare":
        """The key's value is of this commit."""
        return cls(("seq", bytes(key), seq))


@dataclass(slots=True)
class Ops:
    """Writes of one commit, in their order; every method returns the same object, so that calls can be chained."""

    items: list[tuple[object, ...]] = field(default_factory=list)

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> "Ops":
        """Write a value."""
        return self._add("put", key, value, ttl, expire_at)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> "Ops":
        """Add an operand for the database's merge operator."""
        return self._add("merge", key, operand, ttl, expire_at)

    def delete(self, key: BytesLike) -> "Ops":
        """Remove a key."""
        self.items.append(("delete", bytes(key)))
        return self

    def __len__(self) -> int:
        return len(self.items)

    def _add(self, kind: str, key: BytesLike, value: BytesLike, ttl: Ttl, expire_at: Moment | None) -> "Ops":
        life = life_field(ttl, expire_at)
        item = (kind, bytes(key), bytes(value))
        self.items.append(item if life is None else (*item, life))
        return self


def life_field(ttl: Ttl, expire_at: Moment | None) -> object:
    """A lifetime as bodies have it; ``None``: the database's default.

    Raises:
        InvalidRequestError: both are given, or one is impossible.
    """
    if ttl is not None and expire_at is not None:
        raise InvalidRequestError("ttl and expire_at were given: use one or the other")
    if expire_at is not None:
        return {"expire_at": moment_ms(expire_at, name="expire_at")}
    if ttl is None:
        return None
    return "never" if ttl is NEVER else parse_duration_ms(ttl, name="ttl")


def life_headers(ttl: Ttl, expire_at: Moment | None) -> dict[str, str]:
    """A lifetime as headers; raises like ``life_field``."""
    match life_field(ttl, expire_at):
        case None:
            return {}
        case {"expire_at": moment}:
            return {"X-Shale-Expire-At": str(moment)}
        case text:
            return {"X-Shale-TTL-Ms": str(text)}
