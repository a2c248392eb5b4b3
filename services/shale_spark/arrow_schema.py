"""Columns as Spark has them, in Arrow's words, for every PySpark that the extra allows.

PySpark 4.1 always means UTC where 4.2 and later want to be told.
"""

from inspect import signature
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_TOLD: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> Any:
    """The columns as a ``pyarrow.Schema``; timestamps are in UTC."""
    return to_arrow_schema(schema, **_TOLD)
