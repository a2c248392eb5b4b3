"""Values of Avro that claim more than their bytes hold."""

import json
from typing import Any

import pyarrow as pa
import pytest

from shale.errors import InvalidRequestError
from shale_spark.codecs import value_codec

SCHEMA = pa.schema([("a", pa.int64())])


def _record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}


@pytest.mark.parametrize(
    "inner", [["null", "r"], {"type": "array", "items": "r"}, _record(("x", ["null", "r"]), name="s")]
)
def test_a_record_within_itself_is_read_and_a_deep_one_is_a_bad_value(inner: Any) -> None:
    codec = value_codec("avro", avro_schema=json.dumps(_record(("a", "long"), ("next", inner))))
    codec.check(SCHEMA)
    found = codec.decode(pa.array([b"\x02\x00", b"\x02\x02" * 20_000 + b"\x02\x00", b"\x04\x00"], pa.binary()), SCHEMA)
    assert found.columns.to_pylist() == [{"a": 1}, {"a": None}, {"a": 2}]
    assert found.bad.tolist() == [False, True, False]


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "f", "size": 0},
        _record(name="e"),
        _record(("n", "null"), name="e"),
        {"type": "null"},
    ],
)
def test_items_without_bytes_are_refused(items: Any) -> None:
    schema = json.dumps(_record(("a", "long"), ("many", ["null", {"type": "array", "items": items}])))
    with pytest.raises(InvalidRequestError, match="take no bytes"):
        value_codec("avro", avro_schema=schema).check(SCHEMA)


@pytest.mark.parametrize(
    "items", ["long", ["null", "long"], {"type": "array", "items": "long"}, _record(("n", "int"), name="e"), "r"]
)
def test_items_with_bytes_are_accepted(items: Any) -> None:
    schema = json.dumps(_record(("a", "long"), ("many", {"type": "array", "items": items})))
    codec = value_codec("avro", avro_schema=schema)
    codec.check(SCHEMA)
    assert codec.decode(pa.array([b"\x02\x00"], pa.binary()), SCHEMA).columns.to_pylist() == [{"a": 1}]
