"""``WriteBatch`` and ``WriteHandle``."""

from collections.abc import Callable

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime
from shale.compat.slatedb.errors import invalid, raises_slatedb_errors, slatedb_errors
from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.types.enums import Ttl
from shale.compat.slatedb.types.options import MergeOptions, PutOptions
from shale.engine.write import batch as engine
from shale.engine.write import write_handle

MAX_KEY_BYTES = (1 << 32) - 1
"""SlateDB 0.17 takes longer keys than it documents; ``shale.Db`` refuses them by default."""


class WriteBatch:
    """Writes for one commit, which consumes it."""

    __slots__ = ("_batch",)

    def __init__(self) -> None:
        self._batch: engine.WriteBatch | None = engine.WriteBatch(max_key_bytes=MAX_KEY_BYTES)

    def put(self, key: bytes, value: bytes) -> None:
        """Add a value."""
        self._add(engine.WriteBatch.put, key, value)

    def put_with_options(self, key: bytes, value: bytes, options: PutOptions) -> None:
        """Add a value with a lifetime."""
        self._add(engine.WriteBatch.put, key, value, options.ttl)

    def merge(self, key: bytes, operand: bytes) -> None:
        """Add an operand for the merge operator."""
        self._add(engine.WriteBatch.merge, key, operand)

    def merge_with_options(self, key: bytes, operand: bytes, options: MergeOptions) -> None:
        """Add an operand with a lifetime."""
        self._add(engine.WriteBatch.merge, key, operand, options.ttl)

    def delete(self, key: bytes) -> None:
        """Add a deletion."""
        plain = checked_key(key)
        with slatedb_errors():
            self._open().delete(plain)

    def _add(self, add: Callable[..., object], key: bytes, value: bytes, ttl: Ttl | None = None) -> None:
        """Add a row by a method of the engine's batch."""
        plain, content = checked_key(key), checked_value(value)
        with slatedb_errors():
            add(self._open(), plain, content, **({} if ttl is None else lifetime(ttl)))

    def _open(self) -> engine.WriteBatch:
        if self._batch is None:
            raise invalid("write batch has already been consumed")
        return self._batch

    def _take(self) -> engine.WriteBatch:
        taken = self._open()
        self._batch = None
        return taken


class WriteHandle(Handle):
    """An accepted write."""

    __slots__ = ("_handle",)

    _handle: write_handle.WriteHandle

    def seqnum(self) -> int:
        """Return its sequence number."""
        return self._handle.seq

    def create_ts(self) -> int:
        """Return its commit time, in milliseconds since 1970."""
        return self._handle.create_ts

    @raises_slatedb_errors
    async def await_durable(self) -> None:
        """Return once the write is durable."""
        await self._handle.durable()


def handle_of(handle: write_handle.WriteHandle) -> WriteHandle:
    """Wrap a write of the engine."""
    made = WriteHandle._blank_here()
    made._handle = handle
    return made


def taken_from(batch: WriteBatch) -> engine.WriteBatch:
    """Return the content of a batch and consume it.

    Raises:
        TypeError: no batch.
        Error: it was consumed before.
    """
    if not isinstance(batch, WriteBatch):
        raise TypeError(f"Expected WriteBatch instance, {type(batch).__name__} found")
    return batch._take()
