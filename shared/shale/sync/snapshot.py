"""A snapshot whose reads block."""

from typing import Self

from shale.engine import snapshot
from shale.sync.reads import BlockingReads


class Snapshot(BlockingReads[snapshot.Snapshot]):
    """Made by ``Db.snapshot``; see ``shale.Snapshot``.  Use it with ``with``, or close it."""

    @property
    def seq(self) -> int:
        """The newest commit that shows in it."""
        return self._inner.seq

    def close(self) -> None:
        """Let go of it; it cannot be read any more.  May be called again."""
        self._background.call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
