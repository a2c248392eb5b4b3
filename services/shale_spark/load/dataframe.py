"""Conversion of a user's DataFrame to rows in key order, executed by Spark.

Spark compares binary columns by unsigned bytes, and a prefix is less than a longer key: the order of keys in an SST.
``RowStream`` checks the order all the same.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from shale.errors import InvalidRequestError
from shale_spark.codecs import ValueCodec
from shale_spark.load.request import LoadColumns
from shale_spark.load.rows import unencodable_rows
from shale_spark.load.rules import EXPIRE_MS, KEY, KEY_BYTES_MAX, ORDER, REASON, VALUE, require_free_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def select_load_columns(df: "DataFrame", columns: LoadColumns, codec: ValueCodec | None) -> "DataFrame":
    """Return the columns that tasks get, and ``ORDER`` where one row per key is chosen.

    Raises:
        InvalidRequestError: a column is missing or has an unsupported type.
    """
    from pyspark.sql import functions as f

    from shale_spark.arrow import arrow_schema

    selected = [_binary(df, columns.key).alias(KEY)]
    if columns.expire_at is not None:
        selected.append(_milliseconds(df, columns.expire_at).alias(EXPIRE_MS))
    if columns.order_by is not None:
        _type(df, columns.order_by)
        selected.append(f.col(_quoted(columns.order_by)).alias(ORDER))
    if codec is None:
        return df.select(*selected, _binary(df, columns.values[0]).alias(VALUE))
    named = {columns.key, columns.expire_at, columns.order_by}
    values = columns.values or tuple(name for name in df.columns if name not in named)
    for name in values:
        _type(df, name)
    require_free_names(values)
    if not values:
        raise InvalidRequestError("there is no column that could make a value")
    taken = [f.col(_quoted(name)) for name in values]
    codec.check(arrow_schema(df.select(*taken).schema))
    return df.select(*selected, *taken)


def sort_by_key(chosen: "DataFrame", partitions: int) -> "DataFrame":
    """Partition by key range and sort each partition by key, with the wanted row of each key first."""
    from pyspark.sql import functions as f

    ranged = chosen.repartitionByRange(partitions, f.col(KEY))
    if ORDER not in chosen.columns:
        return ranged.sortWithinPartitions(f.col(KEY))
    return ranged.sortWithinPartitions(f.col(KEY), f.col(ORDER).desc_nulls_last()).drop(ORDER)


def split_invalid_rows(chosen: "DataFrame", codec: ValueCodec | None) -> tuple["DataFrame", "DataFrame"]:
    """Return the rows that can be stored, and the others with the reason as an additional column.

    A codec has to try every row, so stored rows are encoded twice: here and in the load.
    """
    from pyspark.sql import functions as f

    length = f.octet_length(f.col(KEY))
    reason = (
        f.when(f.col(KEY).isNull(), f.lit("the key is null"))
        .when(length == 0, f.lit("the key is empty"))
        .when(length > KEY_BYTES_MAX, f.lit(f"the key is longer than {KEY_BYTES_MAX} bytes"))
    )
    if VALUE in chosen.columns:
        reason = reason.when(f.col(VALUE).isNull(), f.lit("the value is null"))
    checked = chosen.withColumn(REASON, reason.cast("string"))
    if codec is not None:
        checked = checked.mapInArrow(partial(_with_codec_reasons, codec), checked.schema)
    return checked.where(f.col(REASON).isNull()).drop(REASON), checked.where(f.col(REASON).isNotNull())


def _with_codec_reasons(codec: ValueCodec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the reason for rows that had none and that the codec refuses."""
    for batch in batches:
        reasons = batch.column(REASON).to_pylist()
        names = [name for name in batch.schema.names if name not in (KEY, EXPIRE_MS, ORDER, REASON)]
        for place, reason in unencodable_rows(batch.select(names), codec):
            reasons[place] = reasons[place] or reason
        columns = [*batch.columns[:-1], pa.array(reasons, batch.schema.field(REASON).type)]
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _binary(df: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as f

    kind = _type(df, name)
    if kind not in ("binary", "string"):
        raise InvalidRequestError(f"column {name!r} is {kind}: keys and values are binary or string")
    column = f.col(_quoted(name))
    return column if kind == "binary" else column.cast("binary")


def _milliseconds(df: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as f

    kind, column = _type(df, name), f.col(_quoted(name))
    if kind == "timestamp":
        return f.unix_millis(column)
    if kind in ("bigint", "int"):
        return column.cast("bigint")
    raise InvalidRequestError(f"column {name!r} is {kind}: an expiry is a timestamp or milliseconds since 1970")


def _type(df: "DataFrame", name: str) -> str:
    """Return the SQL name of a column's type."""
    if name not in df.columns:
        raise InvalidRequestError(f"there is no column {name!r}: the columns are {', '.join(df.columns)}")
    if df.columns.count(name) > 1:
        raise InvalidRequestError(f"there are two columns {name!r}")
    kind: str = df.schema[name].dataType.simpleString()
    return kind


def _quoted(name: str) -> str:
    """Return the name quoted for ``col``, which takes a dot for the member of a struct."""
    return "`" + name.replace("`", "``") + "`"
