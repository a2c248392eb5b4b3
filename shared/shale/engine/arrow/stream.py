"""Rows in Arrow's streaming format, encoded piece by piece for a response."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from shale.engine.arrow.batches import SCHEMA, rows_to_batches
from shale.engine.arrow.compressed import uncompressed_bytes
from shale.kernels.rows import Rows

_NEVER_NULL = [SCHEMA.get_field_index(name) for name in ("key", "value", "seq")]


class ArrowWriter:
    """Encodes one stream: the schema with the first piece, a batch per chunk of rows, and an ending.

    Each batch is serialised alone, which copies its columns once; Arrow's stream writer copies them twice.
    """

    def __init__(self) -> None:
        self._begun = False

    def pieces(self, rows: Rows) -> Iterator[memoryview]:
        """Yield the encoded rows."""
        if not self._begun:
            self._begun = True
            yield memoryview(SCHEMA.serialize())
        for batch in rows_to_batches(rows):
            yield memoryview(batch.serialize())

    def ending(self, metadata: Mapping[str, bytes]) -> bytes:
        """Return an empty batch with metadata, and the end-of-stream marker."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            # Not from Python objects: pyarrow imports pandas for these, half a second on the event loop and 50 MB.
            empty: Any = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)
            stream.write_batch(empty, custom_metadata=dict(metadata))
        data: bytes = sink.getvalue().to_pybytes()
        return data[SCHEMA.serialize().size :] if self._begun else data


def read_table(data: bytes) -> tuple[Any, bytes | None]:
    """Return a whole stream as a ``pyarrow.Table``, and the metadata ``shale`` of its last batch.

    Raises:
        ValueError: it is not a stream of rows.
    """
    batches: list[Any] = []
    ending: bytes | None = None
    try:
        if uncompressed_bytes(data):
            raise ValueError("it is compressed, and might expand to any size")
        with pa.ipc.open_stream(data) as stream:
            if stream.schema != SCHEMA:
                raise ValueError(f"its columns are not those of rows: {', '.join(stream.schema.names)}")
            while True:
                try:
                    batch, metadata = stream.read_next_batch_with_custom_metadata()
                except StopIteration:
                    break
                _check(batch)
                batches.append(batch)
                ending = bytes(metadata["shale"]) if metadata is not None and "shale" in metadata else None
            return pa.Table.from_batches(batches, schema=SCHEMA), ending
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise ValueError(str(error) or "a batch claims more memory than there is") from error


def _check(batch: Any) -> None:
    """Check offsets, which Arrow takes from the stream as they are: they may lead out of memory."""
    batch.validate(full=True)
    if any(batch.column(number).null_count for number in _NEVER_NULL):
        raise ValueError("a row has no key, no value or no sequence number")
