"""Columns of every Spark type become lines of JSON."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import orjson
import pytest
from pyspark.sql import Row

from shale_spark.cli.change_output import as_json

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
LOCAL = NOON.astimezone().replace(tzinfo=None)
"""As PySpark hands it out."""


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (Row(key=b"\xff", n=1, s="x", gone=None), {"key_b64": "/w==", "n": 1, "s": "x", "gone": None}),
        (Row(at=LOCAL, day=date(2024, 1, 1)), {"at": "2024-01-01T12:00:00+00:00", "day": "2024-01-01"}),
        (Row(cents=Decimal("1.20")), {"cents": "1.20"}),
        (Row(f=float("nan"), g=float("-inf"), h=0.5), {"f": "NaN", "g": "-Infinity", "h": 0.5}),
        (Row(a=[b"x", None]), {"a_b64": ["eA==", None]}),
        (Row(s=Row(b=b"x", at=LOCAL)), {"s": {"b_b64": "eA==", "at": "2024-01-01T12:00:00+00:00"}}),
        (Row(m={1: Decimal(2), 3: None}), {"m": {"1": "2", "3": None}}),
        (Row(i=timedelta(seconds=1)), {"i": "0:00:01"}),
    ],
)
def test_a_row_is_a_line(row: Row, line: dict[str, object]) -> None:
    assert orjson.loads(orjson.dumps(as_json(row))) == line
