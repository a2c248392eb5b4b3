"""The writes of a transaction whose values its commands compose."""

from typing import Protocol

from shale.core.ttl import Timestamp, Ttl


class Writes(Protocol):
    """The target of writes: a batch or a transaction."""

    def put(self, key: bytes, value: bytes, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> object:
        """Write a value; see ``WriteBatch.put``."""
        ...

    def delete(self, key: bytes) -> object:
        """Remove a key."""
        ...


class ComposedBytes:
    """The bytes of composed values of all transactions that are not committed yet."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class ComposedWrites:
    """Passes writes on to a transaction, and counts the bytes of their values.

    A command of a few bytes composes a value of up to ``max_value_bytes``, as ``SETRANGE`` does.

    Args:
        total: counts them, too, until ``close``.
    """

    __slots__ = ("_sizes", "_target", "_total", "size_bytes")

    def __init__(self, total: ComposedBytes) -> None:
        self.size_bytes = 0
        self._total = total
        self._sizes: dict[bytes, int] = {}
        self._target: Writes

    def close(self) -> None:
        """Forget all values: the transaction has ended."""
        self._total.size_bytes -= self.size_bytes
        self.size_bytes = 0
        self._sizes.clear()

    def to(self, target: Writes) -> Writes:
        """Return these writes, which go to ``target``."""
        self._target = target
        return self

    def put(self, key: bytes, value: bytes, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> None:
        """Write a value; see ``WriteBatch.put``."""
        self._target.put(key, value, ttl=ttl, expire_at=expire_at)
        self._count(key, len(value))

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._target.delete(key)
        self._count(key, 0)

    def _count(self, key: bytes, size_bytes: int) -> None:
        grown_bytes = size_bytes - self._sizes.get(key, 0)
        self._sizes[key] = size_bytes
        self.size_bytes += grown_bytes
        self._total.size_bytes += grown_bytes
