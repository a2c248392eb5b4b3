"""A snapshot; its reads block."""

from typing import Self

from shale.concurrency.blocking import blocking
from shale.engine.read import snapshot
from shale.engine.reader.snapshot import ReaderSnapshot
from shale.sync.reads import BlockingReads


class Snapshot(BlockingReads[snapshot.Snapshot | ReaderSnapshot]):
    """Made by ``snapshot`` of ``Db`` and ``DbReader``; see ``shale.Snapshot``.  Use it with ``with``, or close it."""

    @property
    def seq(self) -> int:
        """The newest commit that it shows."""
        return self._inner.seq

    close = blocking(snapshot.Snapshot.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
