"""Arrow columns as the rows of commits: no Python object per row, and one copy of every byte.

A source is a ``pyarrow.Table`` or ``RecordBatch``, a reader, a data frame with the Arrow stream interface, or an
iterable of batches.  An iterable yields its next batch only when the batch before is in memory.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.row_order import is_ascending, newest_of_each
from shale.errors import InvalidRequestError
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import I64, U8, Rows
from shale.types import FLAG_CREATE_TS

try:
    import pyarrow as pa
except ImportError:
    raise InvalidRequestError("Arrow needs the package pyarrow: pip install 'shale[arrow]'") from None

_STEP_ROWS = 16_384
"""The keys and offsets of so many rows fit into the cache of a core."""

_KINDS = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
)


class KeyValueColumns(NamedTuple):
    """The key and value columns of one batch, as ``pyarrow.Array``s of equal length."""

    keys: Any
    values: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowSource:
    """Rows to write: Arrow data, the names of its columns, and the rows of one commit (``None``: all rows).

    Raises:
        InvalidRequestError: ``rows_per_commit`` is not positive.
    """

    data: Any
    key: str
    value: str
    rows_per_commit: int | None = None

    def __post_init__(self) -> None:
        if self.rows_per_commit is not None and self.rows_per_commit < 1:
            raise InvalidRequestError(f"rows_per_commit: {self.rows_per_commit} is not positive")


def split_commits(source: ArrowSource) -> Iterator[list[KeyValueColumns]]:
    """Yield the columns of each commit.

    Raises:
        InvalidRequestError: the data is not Arrow data, lacks a column, or a column has nulls or another type.
    """
    commit: list[KeyValueColumns] = []
    missing = source.rows_per_commit
    for pair in _pairs(source.data, source.key, source.value):
        start, count = 0, len(pair.keys)
        while missing is not None and count - start >= missing:
            commit.append(_slice(pair, start, missing))
            yield commit
            start, commit, missing = start + missing, [], source.rows_per_commit
        if start < count:
            commit.append(_slice(pair, start, count - start))
            missing = None if missing is None else missing - (count - start)
    if commit:
        yield commit


def commit_rows(commit: list[KeyValueColumns], *, max_key_bytes: int) -> Rows:
    """Return the rows of one commit by key, the last one of each key.

    ``seq`` is 0 and ``create_ts`` is not set until the commit.  Takes milliseconds: run it in a thread.

    Raises:
        InvalidRequestError: a key is empty or too long; the message names the row of the commit.
    """
    keys, values = CopiedColumn([pair.keys for pair in commit]), CopiedColumn([pair.values for pair in commit])
    rows = _unstamped(keys, values)
    in_order = use_kernels()
    for first, end in keys.fill():
        _check_keys(keys.offsets, first, end, max_key_bytes)
        in_order = in_order and is_ascending(rows.slice(max(first - 1, 0), end))
    for _ in values.fill():
        pass
    return rows if in_order else newest_of_each(rows)


def _unstamped(keys: "CopiedColumn", values: "CopiedColumn") -> Rows:
    """Return rows of two columns that never expire and have no sequence number yet."""
    count = len(keys.offsets) - 1
    return Rows(
        key_bytes=keys.data,
        key_offsets=keys.offsets,
        val_bytes=values.data,
        val_offsets=values.offsets,
        seq=np.zeros(count, np.uint64),
        flags=np.full(count, FLAG_CREATE_TS, np.uint8),
        create_ts=np.empty(count, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )


class CopiedColumn:
    """A copy of several columns, one after the other: another library may overwrite Arrow's memory.

    ``data`` and ``offsets`` are those of ``Rows``; ``fill`` writes their content.
    """

    def __init__(self, columns: list[Any]) -> None:
        self._pieces = [_pieces(column) for column in columns]
        self.size_bytes = sum(int(cuts[-1]) - int(cuts[0]) for _, cuts in self._pieces)
        self.data = np.empty(self.size_bytes, np.uint8)
        self.offsets = np.empty(sum(len(cuts) - 1 for _, cuts in self._pieces) + 1, np.int64)

    def fill(self) -> Iterator[tuple[int, int]]:
        """Copy in steps; yield the rows ``[first, end)`` of each step, while they are in the processor's cache."""
        data, offsets = self.data, self.offsets
        offsets[0] = row = 0
        for source, all_cuts in self._pieces:
            for start in range(0, len(all_cuts) - 1, _STEP_ROWS):
                cuts = all_cuts[start : start + _STEP_ROWS + 1]
                end = row + len(cuts) - 1
                np.add(cuts[1:], offsets[row] - int(cuts[0]), out=offsets[row + 1 : end + 1], dtype=np.int64)
                data[offsets[row] : offsets[end]] = source[cuts[0] : cuts[-1]]
                yield row, end
                row = end


def _pairs(source: Any, key: str, value: str) -> Iterator[KeyValueColumns]:
    for batch in _batches(source):
        pair = KeyValueColumns(_column(batch, key), _column(batch, value))
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
    """Return a column without its dictionary."""
    kind = column.type.value_type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):  # Arrow does not decode these
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_binary()))
    return column.dictionary_decode()


def _slice(pair: KeyValueColumns, start: int, count: int) -> KeyValueColumns:
    return KeyValueColumns(pair.keys.slice(start, count), pair.values.slice(start, count))


def _pieces(column: Any) -> tuple[U8, Any]:
    """Return the bytes of a column without nulls and the offsets of its values, both in Arrow's memory."""
    buffers, first, count = column.buffers(), column.offset, len(column)
    data = buffers[-1]
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        return bytes_, np.arange(first, first + count + 1, dtype=np.int64) * width
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    return bytes_, np.frombuffer(buffers[1], np.int64 if is_large else np.int32)[first : first + count + 1]


def _check_keys(offsets: I64, first: int, end: int, max_key_bytes: int) -> None:
    sizes = np.diff(offsets[first : end + 1])
    if sizes.min() > 0 and sizes.max() <= max_key_bytes:
        return
    place = int(np.flatnonzero((sizes <= 0) | (sizes > max_key_bytes))[0])
    what = "too long" if sizes[place] > 0 else "empty"
    raise InvalidRequestError(
        f"the key in row {first + place} is {what}: {sizes[place]} bytes, must be between 1 and {max_key_bytes}"
    )
