"""What the compressed buffers of an Arrow stream claim to be, before Arrow allocates it.

Source: Arrow's ``Message.fbs``.  The numbers are the places of fields in their tables.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from flatbuffers import encode, packer
from flatbuffers.table import Table

_HEADER = 2
_DICTIONARY_DATA = 1
_BUFFERS = 2
_COMPRESSION = 3
_BUFFER_BYTES = 16
_LENGTH_BYTES = 8


def uncompressed_bytes(data: bytes) -> int:
    """Return the bytes of all compressed buffers of a stream after they are expanded; 0 if there are none.

    Raises:
        ArrowException: a message is damaged.
        OSError: the stream ends within a message.
    """
    total = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        if message.type in ("record batch", "dictionary"):
            total += sum(_claims(message))
    return total


def _claims(message: Any) -> Iterator[int]:
    """Yield what each buffer of a batch claims; Arrow has verified the places within the metadata."""
    metadata = message.metadata.to_pybytes()
    batch = _table(Table(metadata, encode.Get(packer.uoffset, metadata, 0)), _HEADER)
    if batch is not None and message.type == "dictionary":
        batch = _table(batch, _DICTIONARY_DATA)
    if batch is None or not _place(batch, _COMPRESSION):
        return
    place = _place(batch, _BUFFERS)
    body = memoryview(message.body)
    for number in range(batch.VectorLen(place) if place else 0):
        at = batch.Vector(place) + number * _BUFFER_BYTES
        offset, length = (encode.Get(packer.int64, metadata, at + each) for each in (0, _LENGTH_BYTES))
        if length >= _LENGTH_BYTES and 0 <= offset <= len(body) - _LENGTH_BYTES:
            # -1 marks a buffer that is stored as it is.
            yield max(0, int.from_bytes(body[offset : offset + _LENGTH_BYTES], "little", signed=True))


def _place(table: Table, field: int) -> int:
    """Return where a field is, from the beginning of its table; 0 if it is missing."""
    return int(table.Offset(4 + 2 * field))


def _table(table: Table, field: int) -> Table | None:
    place = _place(table, field)
    return Table(table.Bytes, table.Indirect(table.Pos + place)) if place else None
