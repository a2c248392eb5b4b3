"""From Arrow columns to the rows of commits: no Python object per row, and one copy of every byte.

Whatever speaks Arrow can be written: a ``pyarrow.Table`` or ``RecordBatch``, a reader, a data frame with the Arrow
stream interface, or an iterable of batches, which is asked for the next batch only when the one before is in memory.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shale.engine.row_order import newest_of_each
from shale.errors import InvalidRequestError
from shale.kernels.rows import I64, U8, Rows, concat_rows
from shale.types import FLAG_CREATE_TS

try:
    import pyarrow as pa
except ImportError:
    raise InvalidRequestError("Arrow needs the package pyarrow: pip install 'shale[arrow]'") from None

_KINDS = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
)


class ColumnPair(NamedTuple):
    """The key and value columns of one batch, as ``pyarrow.Array``s of equal length."""

    keys: Any
    values: Any


def commits_of(source: Any, *, key: str, value: str, rows_per_commit: int | None) -> Iterator[list[ColumnPair]]:
    """The columns of each commit, which has ``rows_per_commit`` rows, or less at the end; ``None``: all rows.

    Raises:
        InvalidRequestError: this is nothing of Arrow's, or it lacks a column, or a column holds no bytes, or nulls.
    """
    commit: list[ColumnPair] = []
    room = rows_per_commit
    for pair in _pairs(source, key, value):
        start, count = 0, len(pair.keys)
        while room is not None and count - start >= room:
            commit.append(_slice(pair, start, room))
            yield commit
            start, commit, room = start + room, [], rows_per_commit
        if start < count:
            commit.append(_slice(pair, start, count - start))
            room = None if room is None else room - (count - start)
    if commit:
        yield commit


def rows_of(commit: list[ColumnPair], *, max_key_bytes: int) -> Rows:
    """The rows of one commit by key, one each: of several rows with one key the last counts.

    ``seq`` and ``create_ts`` are 0: the commit is still to come.  Takes milliseconds: for a thread.

    Raises:
        InvalidRequestError: a key is empty or too long; says in which row of the commit.
    """
    parts = [_rows(pair) for pair in commit]
    rows = concat_rows(parts)
    _check_keys(rows, max_key_bytes)
    newest = newest_of_each(rows)
    # Memory of Arrow's may belong to somebody who writes into it again.
    return _copied(rows) if newest is rows and len(parts) == 1 else newest


def _pairs(source: Any, key: str, value: str) -> Iterator[ColumnPair]:
    for batch in _batches(source):
        pair = ColumnPair(_column(batch, key), _column(batch, value))
        if len(pair.keys):
            yield pair


def _batches(source: Any) -> Iterable[Any]:
    if isinstance(source, pa.RecordBatch):
        return [source]
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(source)  # type: ignore[no-any-return]
        except pa.ArrowInvalid as error:
            raise InvalidRequestError(f"write_arrow takes Arrow tables or batches: {error}") from error
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        return chain.from_iterable(map(_batches_of_part, source))
    raise InvalidRequestError(f"write_arrow takes Arrow tables or batches, not {type(source).__name__}")


def _batches_of_part(part: Any) -> Iterable[Any]:
    if not hasattr(part, "__arrow_c_array__") and not hasattr(part, "__arrow_c_stream__"):
        raise InvalidRequestError(f"write_arrow takes Arrow tables or batches, not {type(part).__name__}")
    return _batches(part)


def _column(batch: Any, name: str) -> Any:
    if batch.schema.names.count(name) != 1:
        raise InvalidRequestError(
            f"there must be one column {name!r}: the columns are {', '.join(batch.schema.names) or 'none'}"
        )
    column = batch.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = _decoded(column)
        kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary())
    elif not any(is_a(kind) for is_a in _KINDS):
        raise InvalidRequestError(f"column {name!r} is {kind}: it must be binary or string")
    if column.null_count:
        raise InvalidRequestError(f"column {name!r} has {column.null_count} nulls: every row needs a {name}")
    return column


def _decoded(column: Any) -> Any:
    """A column without its dictionary."""
    kind = column.type.value_type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):  # which Arrow does not decode
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_binary()))
    return column.dictionary_decode()


def _slice(pair: ColumnPair, start: int, count: int) -> ColumnPair:
    return ColumnPair(pair.keys.slice(start, count), pair.values.slice(start, count))


def _rows(pair: ColumnPair) -> Rows:
    """One batch as rows that share its memory."""
    count = len(pair.keys)
    key_bytes, key_offsets = _pieces(pair.keys)
    val_bytes, val_offsets = _pieces(pair.values)
    return Rows(
        key_bytes=key_bytes,
        key_offsets=key_offsets,
        val_bytes=val_bytes,
        val_offsets=val_offsets,
        seq=np.zeros(count, np.uint64),
        flags=np.full(count, FLAG_CREATE_TS, np.uint8),
        create_ts=np.zeros(count, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )


def _pieces(column: Any) -> tuple[U8, I64]:
    """The bytes of a column without nulls, and where they are cut."""
    buffers, first, count = column.buffers(), column.offset, len(column)
    data = buffers[-1]
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        return bytes_, np.arange(first, first + count + 1, dtype=np.int64) * width
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    offsets = np.frombuffer(buffers[1], np.int64 if is_large else np.int32)[first : first + count + 1]
    return bytes_, np.ascontiguousarray(offsets, np.int64)


def _check_keys(rows: Rows, max_key_bytes: int) -> None:
    sizes = np.diff(rows.key_offsets)
    shortest, longest = int(sizes.argmin()), int(sizes.argmax())
    for place, what, is_wrong in (
        (shortest, "empty", sizes[shortest] == 0),
        (longest, "too long", sizes[longest] > max_key_bytes),
    ):
        if is_wrong:
            raise InvalidRequestError(
                f"the key in row {place} is {what}: {sizes[place]} bytes, must be between 1 and {max_key_bytes}"
            )


def _copied(rows: Rows) -> Rows:
    keys, values = rows.key_offsets, rows.val_offsets
    return Rows(
        key_bytes=rows.key_bytes[keys[0] : keys[-1]].copy(),
        key_offsets=_from_zero(keys),
        val_bytes=rows.val_bytes[values[0] : values[-1]].copy(),
        val_offsets=_from_zero(values),
        seq=rows.seq,
        flags=rows.flags,
        create_ts=rows.create_ts,
        expire_ts=rows.expire_ts,
    )


def _from_zero(offsets: I64) -> I64:
    """Offsets of the same pieces in a buffer of their own; those that were widened are no memory of Arrow's."""
    return offsets if offsets.flags.owndata and not offsets[0] else offsets - offsets[0]
