"""The result of a blocking write."""

from typing import Any

from shale.concurrency.blocking import BlockingHandle, Run, blocking
from shale.engine.write import write_handle


class WriteHandle(BlockingHandle[write_handle.WriteHandle]):
    """A write that is in memory and readable; see ``shale.WriteHandle``."""

    __slots__ = ()

    @property
    def seq(self) -> int:
        """Its sequence number."""
        return self._inner.seq

    @property
    def create_ts(self) -> int:
        """Its commit time in milliseconds since 1970."""
        return self._inner.create_ts

    durable = blocking(write_handle.WriteHandle.durable)

    def __reduce__(self) -> Any:
        raise TypeError("a write handle belongs to its process and cannot be pickled: its seq can")

    def __repr__(self) -> str:
        return repr(self._inner)


def handle_or_none(inner: write_handle.WriteHandle | None, run: Run) -> WriteHandle | None:
    """Return the blocking handle of a commit; ``None`` if it wrote nothing."""
    return None if inner is None else WriteHandle(inner, run)
