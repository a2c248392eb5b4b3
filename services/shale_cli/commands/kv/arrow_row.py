"""Values that are an Arrow IPC stream of one row."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shale.errors import InvalidRequestError

try:
    import pyarrow as pa
except ImportError:
    raise InvalidRequestError(
        "--value-format arrow-row needs the package pyarrow: pip install 'shale[arrow]'"
    ) from None

from shale_cli.commands.kv.arrow_bounds import require_bounded, require_bounded_buffers

UNREADABLE = (pa.ArrowException, OSError, MemoryError)
TOO_LARGE = "a part of it claims more memory than there is"
"""Arrow allocates what data claims, before it looks at its size; its error then has no text."""


def encode_row(fields: Mapping[str, Any]) -> bytes:
    """Return fields as an Arrow IPC stream of one row.

    Raises:
        InvalidRequestError: Arrow has no type for a field, like a list of texts and numbers.
    """
    if not fields:
        # Without columns, only a structure says that there is a row.
        return as_stream(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))
    columns = [_column(name, value) for name, value in fields.items()]
    return as_stream(pa.RecordBatch.from_arrays(columns, names=list(fields)))


def _column(name: str, value: object) -> Any:
    try:
        return pa.array([value])
    except OverflowError as error:
        raise InvalidRequestError(f"{name} has an integer above {2**63 - 1}: write it as text") from error
    except pa.ArrowException as error:
        raise InvalidRequestError(f"{name} has no type of Arrow: {error}") from error


def decode_row(data: bytes) -> Mapping[str, Any]:
    """Return the fields of the only row of an Arrow IPC stream.

    Raises:
        InvalidRequestError: it is not such a stream, or Python has no such time or number.
    """
    try:
        return {name: _plain(name, value) for name, value in decode_scalars(data).items()}
    except (ArithmeticError, LookupError) as error:  # a year after 9999, an unknown time zone, a bad decimal
        raise InvalidRequestError(f"{type(error).__name__}: {error}") from error


def _plain(name: str, value: Any) -> Any:
    if is_of_nanoseconds(name, value.type):
        value = value.cast(pa.string())
    return value.as_py()


def is_of_nanoseconds(name: str, type_: Any) -> bool:
    """Return whether a column has times of nanoseconds, which Python cuts.

    Raises:
        InvalidRequestError: its lists or objects have them.
    """
    if any(map(_has_nanoseconds, _types_within(type_))):
        raise InvalidRequestError(f"{name} has times of nanoseconds within {type_}: store it as Arrow or Parquet")
    return _has_nanoseconds(type_)


def _has_nanoseconds(type_: Any) -> bool:
    return getattr(type_, "unit", None) == "ns" and not pa.types.is_duration(type_)


def _types_within(type_: Any) -> Iterator[Any]:
    for place in range(type_.num_fields):
        within = type_.field(place).type
        yield within
        yield from _types_within(within)


def decode_scalars(data: bytes) -> Mapping[str, Any]:
    """Return the fields like ``decode_row``, as Arrow scalars, which keep their types."""
    try:
        require_bounded_buffers(data)
        with pa.ipc.open_stream(data) as stream:
            rows = pa.Table.from_batches(checked(stream), stream.schema)
    except UNREADABLE as error:
        raise InvalidRequestError(str(error) or TOO_LARGE) from error
    # Earlier versions wrote no row if there was no column.
    if rows.num_rows != 1 and (rows.num_rows or rows.column_names):
        raise InvalidRequestError(f"it has {rows.num_rows} rows")
    require_bounded(rows, len(data))
    if len(set(rows.column_names)) < len(rows.column_names):
        raise InvalidRequestError(f"several columns have one name: {', '.join(rows.column_names):.100}")
    return {name: column[0] for name, column in zip(rows.column_names, rows.columns, strict=True)}


def checked(batches: Iterable[Any]) -> Iterator[Any]:
    """Check offsets and texts, which Arrow takes as they are: they may lead out of memory."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def as_stream(batch: Any) -> bytes:
    """Return a record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
