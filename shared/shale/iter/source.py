"""The interface of row iterators: chunks of rows in columns."""

from collections.abc import Sequence
from typing import Protocol

from shale.kernels.rows import Rows


class RowSource(Protocol):
    """Rows by ascending key, and per key by descending sequence number."""

    async def next(self) -> Rows | None:
        """Return the next chunk, never empty; ``None`` at the end and ever after."""
        ...


class RowsSource:
    """Rows in memory, as one chunk."""

    def __init__(self, rows: Rows) -> None:
        self._rows: Rows | None = rows if len(rows) else None

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        rows, self._rows = self._rows, None
        return rows


class ChunksSource:
    """Rows in memory, as several ascending chunks."""

    def __init__(self, chunks: Sequence[Rows]) -> None:
        self._chunks = iter([rows for rows in chunks if len(rows)])

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return next(self._chunks, None)


async def drain(source: RowSource) -> list[Rows]:
    """Return every chunk of a source."""
    chunks = []
    while (rows := await source.next()) is not None:
        chunks.append(rows)
    return chunks
