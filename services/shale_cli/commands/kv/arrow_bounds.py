"""Bounds what a stored Arrow value becomes: a few hundred bytes may stand for millions of elements.

Elements that take no bytes (nulls, objects without fields, runs), views that overlap, and dictionaries that are used
many times make the objects of Python, or text, larger than the data.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shale.engine.arrow.compressed import uncompressed_bytes
from shale.errors import InvalidRequestError
from shale.kernels.rows import I64

_ELEMENTS_PER_BYTE = 8
_ELEMENTS_SPARE = 1 << 16
_BYTES_PER_BYTE = 64
_BYTES_SPARE = 1 << 20


def require_bounded_buffers(data: bytes) -> None:
    """Require that the compressed buffers of a stream are not much larger than it after they are expanded.

    Raises:
        InvalidRequestError: says how many bytes they claim.
        ArrowException, OSError: it is no stream.
    """
    claimed = uncompressed_bytes(data)
    if claimed > _BYTES_PER_BYTE * len(data) + _BYTES_SPARE:
        raise InvalidRequestError(f"{len(data)} bytes claim {claimed} bytes after they are expanded")


def require_bounded(rows: Any, size_bytes: int) -> None:
    """Require that a table is not much larger than the stream that it was read from; its arrays are valid.

    Raises:
        InvalidRequestError: says how many elements or bytes it has.
    """
    elements = text_bytes = 0
    for array in (part for column in rows.columns for chunk in column.chunks for part in _within(chunk)):
        elements += len(array)
        text_bytes += _text_bytes(array)
        if elements > _ELEMENTS_PER_BYTE * size_bytes + _ELEMENTS_SPARE:
            raise InvalidRequestError(f"{size_bytes} bytes claim {elements} elements")
        if text_bytes > _BYTES_PER_BYTE * size_bytes + _BYTES_SPARE:
            raise InvalidRequestError(f"{size_bytes} bytes claim a text of {text_bytes} bytes")


def _within(array: Any) -> Iterator[Any]:
    """Yield an array and those within it, each as long as it is used."""
    yield array
    type_ = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _within(array.storage)
    elif pa.types.is_struct(type_):
        for place in range(type_.num_fields):
            yield from _within(array.field(place))
    elif pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        used = array.sizes.sum().as_py() or 0
        if used > len(array.values):
            raise InvalidRequestError(f"lists overlap: {used} elements of {len(array.values)}")
        yield from _within(array.values)
    elif pa.types.is_map(type_):
        yield from _within(array.keys)
        yield from _within(array.items)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        yield from _within(array.flatten())
    elif pa.types.is_union(type_):
        for place in range(type_.num_fields):
            yield from _within(array.field(place))
    elif (pa.types.is_run_end_encoded(type_) or pa.types.is_dictionary(type_)) and _is_nested(type_.value_type):
        raise InvalidRequestError(f"a column of {type_!s:.60}")


def _text_bytes(array: Any) -> int:
    """Return the bytes of all texts of an array, each as often as it is used."""
    type_ = array.type
    if pa.types.is_dictionary(type_) and _is_text(type_.value_type):
        used = array.indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        return int(_lengths(array.dictionary)[used].sum())
    if pa.types.is_run_end_encoded(type_) and _is_text(type_.value_type):
        runs = np.diff(array.run_ends.to_numpy(zero_copy_only=False).astype(np.int64), prepend=0)
        return int((runs * _lengths(array.values)).sum())
    return int(_lengths(array).sum()) if _is_text(type_) else 0


def _lengths(array: Any) -> I64:
    """Return the length of each text; 0 of a null."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
        found = views[array.offset : array.offset + len(array), 0].astype(np.int64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), found, 0)
    lengths = pc.call_function("binary_length", [array]).cast(pa.int64()).fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _is_nested(type_: Any) -> bool:
    return bool(pa.types.is_nested(type_) or pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_))


def _is_text(type_: Any) -> bool:
    return any(
        is_a(type_)
        for is_a in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_string_view,
            pa.types.is_binary_view,
        )
    )
