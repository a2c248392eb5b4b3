"""Rows in Arrow's streaming format, piece by piece, for whoever sends them on."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from shale.engine.arrow import SCHEMA, rows_to_batches
from shale.kernels.rows import Rows


class ArrowWriter:
    """Writes one stream: the schema with the first piece, a batch for what was read together, and an ending."""

    def __init__(self) -> None:
        self._sink = _Pieces()
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), SCHEMA)

    def pieces(self, rows: Rows) -> Iterator[bytes]:
        """The rows, ready to be sent."""
        for batch in rows_to_batches(rows):
            self._stream.write_batch(batch)
            yield self._sink.take()

    def ending(self, metadata: Mapping[str, bytes]) -> bytes:
        """An empty batch with metadata, and the mark of the stream's end."""
        empty: Any = pa.RecordBatch.from_pylist([], schema=SCHEMA)
        self._stream.write_batch(empty, custom_metadata=dict(metadata))
        self._stream.close()
        return self._sink.take()


def read_table(data: bytes) -> tuple[Any, bytes | None]:
    """A whole stream as a ``pyarrow.Table``, and the metadata ``shale`` of its last batch."""
    with pa.ipc.open_stream(data) as stream:
        batches: list[Any] = []
        ending: bytes | None = None
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return pa.Table.from_batches(batches, schema=SCHEMA), ending
            batches.append(batch)
            ending = bytes(metadata["shale"]) if metadata is not None and "shale" in metadata else None


class _Pieces:
    """What was written and not yet taken; pyarrow wants it to look like a file."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        """Keep it; what comes here is the writer's own memory, which it uses again."""
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """All of it."""
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to do."""
