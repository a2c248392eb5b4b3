"""``WriteBatch`` and ``WriteHandle``."""

from collections.abc import Callable

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime
from shale.compat.slatedb.errors import invalid, translated, translates
from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.options import MergeOptions, PutOptions
from shale.engine import batch as engine
from shale.engine import write_handle

MAX_KEY_BYTES = (1 << 32) - 1
"""SlateDB 0.17 takes longer keys than it documents; ``shale.Db`` refuses them unless told otherwise."""


class WriteBatch:
    """Writes for one commit; a commit uses it up."""

    __slots__ = ("_batch",)

    def __init__(self) -> None:
        self._batch: engine.WriteBatch | None = engine.WriteBatch(max_key_bytes=MAX_KEY_BYTES)

    def put(self, key: bytes, value: bytes) -> None:
        """Add a value."""
        plain, content = checked_key(key), checked_value(value)
        with translated():
            self._open().put(plain, content)

    def put_with_options(self, key: bytes, value: bytes, options: PutOptions) -> None:
        """Add a value with a lifetime."""
        plain, content = checked_key(key), checked_value(value)
        with translated():
            self._open().put(plain, content, **lifetime(options.ttl))

    def merge(self, key: bytes, operand: bytes) -> None:
        """Add an operand for the merge operator."""
        plain, content = checked_key(key), checked_value(operand)
        with translated():
            self._open().merge(plain, content)

    def merge_with_options(self, key: bytes, operand: bytes, options: MergeOptions) -> None:
        """Add an operand with a lifetime."""
        plain, content = checked_key(key), checked_value(operand)
        with translated():
            self._open().merge(plain, content, **lifetime(options.ttl))

    def delete(self, key: bytes) -> None:
        """Add a deletion."""
        plain = checked_key(key)
        with translated():
            self._open().delete(plain)

    def _open(self) -> engine.WriteBatch:
        if self._batch is None:
            raise invalid("write batch has already been consumed")
        return self._batch

    def _take(self) -> engine.WriteBatch:
        taken = self._open()
        self._batch = None
        return taken


class WriteHandle(Handle):
    """A write that was accepted."""

    __slots__ = ("_handle",)

    _handle: write_handle.WriteHandle

    def seqnum(self) -> int:
        """Its sequence number."""
        return self._handle.seq

    def create_ts(self) -> int:
        """When it was accepted, in milliseconds since 1970."""
        return self._handle.create_ts

    @translates
    async def await_durable(self) -> None:
        """Return once it is in the store."""
        await self._handle.durable()


def handle_of(handle: write_handle.WriteHandle) -> WriteHandle:
    """The handle of a write of the engine."""
    made = WriteHandle._blank_here()
    made._handle = handle
    return made


def taken_from(batch: WriteBatch) -> engine.WriteBatch:
    """What a batch holds, which is used up.

    Raises:
        TypeError: no batch.
        Error: it was used up before.
    """
    if not isinstance(batch, WriteBatch):
        raise TypeError(f"Expected WriteBatch instance, {type(batch).__name__} found")
    return batch._take()


def batch_of(add: Callable[[engine.WriteBatch], None]) -> engine.WriteBatch:
    """A batch of the engine with what ``add`` puts into it."""
    batch = engine.WriteBatch(max_key_bytes=MAX_KEY_BYTES)
    add(batch)
    return batch
