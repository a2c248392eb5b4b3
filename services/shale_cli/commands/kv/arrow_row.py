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
    try:
        rows = pa.ipc.open_stream(data).read_all().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(str(error)) from error
    if len(rows) != 1:
        raise InvalidRequestError(f"it has {len(rows)} rows")
    found: Mapping[str, Any] = rows[0]
    return found


def as_stream(batch: Any) -> bytes:
    """Return a record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
