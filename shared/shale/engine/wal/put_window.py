"""Which WAL files of a writer are in flight, and how far the written ones have no gap.  No I/O.

Source: docs/reference/protocol.md 4.13.
"""

from shale.engine.wal.buffer import PendingWalFile


class PutWindow:
    """Puts of one writer that end in any order.

    Args:
        limit: the number of puts that may be in flight.
        durable_id: the last file below which none is missing.
    """

    __slots__ = ("_durable_id", "_halted", "_in_flight", "_last_id", "_limit", "_written")

    def __init__(self, limit: int, durable_id: int) -> None:
        self._limit = limit
        self._durable_id = self._last_id = durable_id
        self._in_flight = 0
        self._halted = False
        self._written: dict[int, PendingWalFile] = {}

    @property
    def has_room(self) -> bool:
        """Whether another put may begin."""
        return self._in_flight < self._limit and not self._halted

    def halt(self) -> None:
        """Let no further put begin."""
        self._halted = True

    def begin(self, file: PendingWalFile) -> None:
        """Record that the put of a file begins; files begin in the order of their ids."""
        assert self.has_room, "too many puts are in flight"
        assert file.id == self._last_id + 1, "a WAL id was left out"
        self._last_id = file.id
        self._in_flight += 1

    def end(self) -> None:
        """Record that a put has ended, in whichever way."""
        self._in_flight -= 1

    def written(self, file: PendingWalFile) -> list[PendingWalFile]:
        """Record that a file exists; return the files, oldest first, below which none is missing any more."""
        self._written[file.id] = file
        contiguous: list[PendingWalFile] = []
        while (following := self._written.pop(self._durable_id + 1, None)) is not None:
            contiguous.append(following)
            self._durable_id = following.id
        return contiguous
