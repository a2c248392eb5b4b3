"""Selection of the stored columns from a user's Arrow batch, renamed as in ``rules``.

``dataframe`` does the same for DataFrames, executed by Spark; a data source gets plain batches.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shale.errors import InvalidRequestError
from shale_spark.load.request import LoadColumns
from shale_spark.load.rules import EXPIRE_MS, KEY, VALUE, require_free_names


def select_stored_columns(batch: pa.RecordBatch, columns: LoadColumns, *, has_codec: bool) -> pa.RecordBatch:
    """Return the batch with the columns that are stored.

    Raises:
        InvalidRequestError: a column is missing or has an unsupported type.
    """
    found = {KEY: _binary(batch, columns.key)}
    if columns.expire_at is not None:
        found[EXPIRE_MS] = _milliseconds(batch, columns.expire_at)
    if not has_codec:
        found[VALUE] = _binary(batch, columns.values[0])
    else:
        named = {columns.key, columns.expire_at}
        names = columns.values or [name for name in batch.schema.names if name not in named]
        require_free_names(names)
        for name in names:
            found[name] = _column(batch, name)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _column(batch: pa.RecordBatch, name: str) -> Any:
    if name not in batch.schema.names:
        raise InvalidRequestError(f"there is no column {name!r}: the columns are {', '.join(batch.schema.names)}")
    return batch.column(name)


def _binary(batch: pa.RecordBatch, name: str) -> Any:
    column = _column(batch, name)
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    raise InvalidRequestError(f"column {name!r} is {kind}: keys and values are binary or string")


def _milliseconds(batch: pa.RecordBatch, name: str) -> Any:
    column = _column(batch, name)
    if pa.types.is_timestamp(column.type):
        return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    raise InvalidRequestError(f"column {name!r} is {column.type}: an expiry is a timestamp or milliseconds since 1970")
