"""What a blocking write returns."""

from typing import Any

from shale.engine import write_handle
from shale.sync.background import Background


class WriteHandle:
    """A write that is in memory and readable; see ``shale.WriteHandle``."""

    __slots__ = ("_background", "_handle")

    def __init__(self, handle: write_handle.WriteHandle, background: Background) -> None:
        self._handle = handle
        self._background = background

    @property
    def seq(self) -> int:
        """Its sequence number."""
        return self._handle.seq

    @property
    def create_ts(self) -> int:
        """Its commit time in milliseconds since 1970."""
        return self._handle.create_ts

    def durable(self) -> None:
        """Return once the write is durable; see ``shale.WriteHandle.durable``."""
        self._background.call(self._handle.durable())

    def __reduce__(self) -> Any:
        raise TypeError("a write handle belongs to its process and cannot be pickled: its seq can")

    def __repr__(self) -> str:
        return repr(self._handle)
