"""Values that are an Arrow IPC stream of one row."""

from collections.abc import Mapping
from typing import Any

from shale.errors import InvalidRequestError

try:
    import pyarrow as pa
except ImportError:
    raise InvalidRequestError(
        "--value-format arrow-row needs the package pyarrow: pip install 'shale[arrow]'"
    ) from None


def encode_row(fields: Mapping[str, Any]) -> bytes:
    """Return fields as an Arrow IPC stream of one row."""
    return as_stream(pa.RecordBatch.from_pylist([dict(fields)]))


def decode_row(data: bytes) -> Mapping[str, Any]:
    """Return the fields of the only row of an Arrow IPC stream.

    Raises:
        InvalidRequestError: it is not such a stream.
    """
    found: Mapping[str, Any] = _only_row(data).to_pylist()[0]
    return found


def decode_scalars(data: bytes) -> Mapping[str, Any]:
    """Return the fields like ``decode_row``, as Arrow scalars, which keep their types."""
    row = _only_row(data)
    return {name: row.column(name)[0] for name in row.column_names}


def _only_row(data: bytes) -> Any:
    try:
        rows = pa.ipc.open_stream(data).read_all()
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(str(error)) from error
    if rows.num_rows != 1:
        raise InvalidRequestError(f"it has {rows.num_rows} rows")
    return rows


def as_stream(batch: Any) -> bytes:
    """Return a record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
