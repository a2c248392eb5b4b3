"""Vectors, strings and ids for ``flatbuffers.Builder``, which the generated builders of tables refer to.

Every function returns an offset from the end of the buffer, and 0, which leaves a field out, for ``None``.  A table's
fields are added by descending width and, within one width, by descending slot, as SlateDB's builder does: the order of
the calls is part of the format (docs/reference/format.md 3.2).
"""

from collections.abc import Sequence
from uuid import UUID

import numpy as np
from flatbuffers import Builder
from numpy.typing import NDArray

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.types import Ulid

_MASK64 = 2**64 - 1


def write_bytes(builder: Builder, data: bytes | None) -> int:
    """Write a vector of bytes."""
    return 0 if data is None else builder.CreateByteVector(data)


def write_string(builder: Builder, text: str | None) -> int:
    """Write a string with its closing zero byte."""
    return 0 if text is None else builder.CreateString(text)


def write_u32s(builder: Builder, values: Sequence[int]) -> int:
    """Write a vector of u32."""
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependUint32(value)
    return builder.EndVector()


def write_offsets(builder: Builder, tables: Sequence[int]) -> int:
    """Write a vector of tables that were written before."""
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return builder.EndVector()


def write_ulid(builder: Builder, value: Ulid | None) -> int:
    """Write a ``Ulid`` table."""
    if value is None:
        return 0
    schema.UlidStart(builder)
    schema.UlidAddLow(builder, value & _MASK64)
    schema.UlidAddHigh(builder, value >> 64)
    return schema.UlidEnd(builder)


def write_uuid(builder: Builder, value: UUID | None) -> int:
    """Write a ``Uuid`` table."""
    if value is None:
        return 0
    schema.UuidStart(builder)
    schema.UuidAddLow(builder, value.int & _MASK64)
    schema.UuidAddHigh(builder, value.int >> 64)
    return schema.UuidEnd(builder)


def write_ulids(builder: Builder, values: Sequence[Ulid]) -> int:
    """Write a vector of ``Ulid`` tables."""
    return write_offsets(builder, [write_ulid(builder, value) for value in values])


def finish(builder: Builder, root: int) -> bytes:
    """Return the whole buffer with ``root`` as its root table."""
    builder.Finish(root)
    return bytes(builder.Output())


def write_offset_column(builder: Builder, tables: NDArray[np.int64]) -> int:
    """Write a vector of tables as ``write_offsets`` does, from an array: an index has one for each block."""
    count = len(tables)
    end = builder.Offset() + (-builder.Offset() & 3)
    relative = end + 4 * count - 4 * np.arange(count) - tables
    return builder.CreateNumpyVector(relative.astype("<u4"))


def append_image(builder: Builder, image: BytesLike, *, alignment: int) -> None:
    """Put the bytes of tables and vtables, which a kernel laid out, in front of the bytes written so far.

    Args:
        builder: between two tables.
        image: laid out for the builder's current offset.
        alignment: the largest that the image relies on.
    """
    builder.Prep(1, len(image))  # makes space; an alignment of 1 pads nothing
    builder.minalign = max(builder.minalign, alignment)
    builder.head -= len(image)
    builder.Bytes[builder.head : builder.head + len(image)] = image
