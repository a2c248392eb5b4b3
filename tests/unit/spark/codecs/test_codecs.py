"""Values become columns and columns values in every format; invalid values are marked or refused."""

import datetime as dt
import json
import pickle
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgpack
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import InvalidRequestError
from shale_spark.codecs import InvalidValue, ValueCodec, value_codec
from shale_spark.codecs.codec import require_decoded

AVRO = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "a", "type": ["null", "long"]},
            {"name": "s", "type": ["null", "string"]},
            {"name": "f", "type": ["null", "double"]},
            {"name": "l", "type": ["null", {"type": "array", "items": "int"}]},
            {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    }
)
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.int32())),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROW = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=8),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "l": st.none() | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "d": st.none() | st.dates(),
        "t": st.none() | st.integers(0, 2**52).map(lambda us: EPOCH + dt.timedelta(microseconds=us)),
    }
)
FORMATS = ["json", "msgpack", "avro", f"{__name__}:Reversed"]


class Reversed:
    """A codec that a user writes: JSON, backwards."""

    def decode(self, value: bytes) -> Mapping[str, Any] | None:
        """Decode bytes to columns."""
        found = orjson.loads(value[::-1])
        return None if found is None else found  # type: ignore[no-any-return]

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Encode columns to bytes."""
        return orjson.dumps(row)[::-1]


def named(name: str) -> ValueCodec:
    """Return a codec, as a task receives it."""
    codec: ValueCodec = pickle.loads(pickle.dumps(value_codec(name, avro_schema=AVRO)))
    return codec


def binary(*values: bytes) -> Any:
    """Return values as a column with an offset."""
    return pa.array([b"before", *values], pa.binary())[1:]


@pytest.mark.parametrize("name", FORMATS)
@given(rows=st.lists(ROW, max_size=6))
def test_rows_survive_each_format(name: str, rows: list[dict[str, Any]]) -> None:
    """Nulls, all characters, the limits of integers, nested lists, dates and times."""
    codec = named(name)
    codec.check(SCHEMA)
    written = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    decoded = codec.decode(codec.encode(written), SCHEMA)
    assert decoded.first_failure() is None, decoded.why
    decoded.columns.validate(full=True)
    assert decoded.columns.schema.equals(SCHEMA)
    assert decoded.columns.to_pylist() == rows


BAD = {
    "json": [b"", b" ", b"{", b'{"a":1}{"a":2}', b'{"a":1}}\n{"v":{"a":2}', b'{"a":1,"a":2}', b"[1]", b"5", b"\xff",
             b'{"a":1.5}', b'{"a":"1"}', b'{"s":1}', b'{"s":"\xff"}', b'{"a":9223372036854775808}', b'{"a":[1',
             b'{"d":"yesterday"}', b'{"l":[1,"x"]}', b'{"s":"a\nb"}',
             b'{"a":1},"w":3', b'{"a":1},"v":{"a":2}', b'null,"w":3', b'{"a":1},{"a":2}', b'{"a":1}],"w":[3',
             b'{"a":1}]}\n{"v":[3', b'{"a":1}]', b'{"a":1}}', b'{"a":1}}\x00', b'{"a":1}\x00', b'{"s":"\x00"}',
             b'"', b'{"s":"', b'{"a":1},', b',{"a":1}', b'{"a":1}//', b'\xef\xbb\xbf{}', b"\n", b"\x00", b"nul",
             b'{"z":"\xff"}', b'{"\xff":1}', b'{"s":"\\ud800"}', b'{"f":NaN}', b'{"z":NaN}', b'{"z":-Infinity}',
             b'{"f":Inf}', b'{"f":1e400}', b'{"f":' + b"9" * 400 + b"}", b'{"z":' + b"[" * 10_000 + b"}"],
    "msgpack": [b"", b"\xc1", msgpack.packb(5), msgpack.packb([1]), msgpack.packb({"a": "1"}),
                msgpack.packb({"a": 1.5}), msgpack.packb({"s": 1}),
                msgpack.packb({"d": "yesterday"}), msgpack.packb({"a": 2**63}),
                msgpack.packb({"a": 1}) + b"\x00", msgpack.packb({"a": 1})[:-1], msgpack.packb({"l": [1, 1.5]})],
    "avro": [b"", b"\x07", b"\x00" * 5, b"\x00" * 7, b"\x00\x02\x04\xff\xfe" + b"\x00" * 4],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_marked_and_its_neighbours_are_read(name: str, value: bytes) -> None:
    """At any position; a value with trailing data is invalid too."""
    codec = named(name)
    good = codec.encode(pa.RecordBatch.from_pylist([{"a": i, "s": "x"} for i in range(7)], schema=SCHEMA)).to_pylist()
    for place in (0, 3, 7):
        decoded = codec.decode(binary(*good[:place], value, *good[place:]), SCHEMA)
        assert decoded.bad.nonzero()[0].tolist() == [place]
        assert decoded.why
        found = decoded.columns.column("a").to_pylist()
        assert found == [*range(place), None, *range(place, 7)]
        with pytest.raises(InvalidValue, match=f"key b'k{place}' is not {name}"):
            require_decoded(decoded, binary(*[b"k%d" % i for i in range(8)]), name)


def test_values_that_add_up_to_the_right_count_are_still_bad() -> None:
    """Two objects in one value and half an object in two others must not shift the rows between them."""
    values = binary(b'{"a":1}{"a":2}', b'{"a":', b"3}", b'{"a":4}')
    decoded = named("json").decode(values, SCHEMA)
    assert decoded.bad.tolist() == [True, True, True, False]
    assert decoded.columns.column("a").to_pylist() == [None, None, None, 4]


@given(st.lists(st.text('{}[]":,1z\n \\', max_size=12).map(str.encode), min_size=1, max_size=4))
def test_json_takes_what_another_parser_takes(texts: list[bytes]) -> None:
    """For any brackets, quotes and separators in neighbours: a value is valid if it is one object, or null."""
    texts = [b'{"z":' + text for text in texts] + [b'{"z":1' + text for text in texts]
    decoded = named("json").decode(binary(*texts), SCHEMA)
    assert [not bad for bad in decoded.bad] == [_is_object(text) for text in texts]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def test_json_takes_words_that_only_look_like_numbers_and_what_is_nested_deeply() -> None:
    deep = b'{"z":' + b"[" * 10_000 + b"]" * 10_000 + b',"a":2}'
    decoded = named("json").decode(binary(b'{"s":"NaN, Infinity","a":1}', deep), SCHEMA)
    assert decoded.first_failure() is None, decoded.why
    assert decoded.columns.column("a").to_pylist() == [1, 2]


def test_json_null_and_missing_and_unknown_members() -> None:
    """They are all valid: columns are null or not requested."""
    decoded = named("json").decode(binary(b"null", b"{}", b'{"zz":{"a":3}}', b' {"a" : 1 ,\n"s":"\\u00e9"} '), SCHEMA)
    assert decoded.first_failure() is None, decoded.why
    assert decoded.columns.column("a").to_pylist() == [None, None, None, 1]
    assert decoded.columns.column("s").to_pylist() == [None, None, None, "é"]


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_nested_types(name: str) -> None:
    """Structs with dates, maps, decimals."""
    schema = pa.schema(
        [
            pa.field("p", pa.struct([pa.field("d", pa.date32()), pa.field("n", pa.int8(), nullable=False)])),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("e", pa.decimal128(10, 2)),
        ]
    )
    rows = [{"p": {"d": dt.date(2024, 2, 29), "n": 1}, "m": [("x", 1)], "e": Decimal("1.25")}]
    codec = named(name)
    codec.check(schema)
    for part in (schema, pa.schema([schema.field("p"), schema.field("e")])):
        batch = pa.RecordBatch.from_pylist([{field: rows[0][field] for field in part.names}], schema=part)
        decoded = codec.decode(codec.encode(batch), part)
        assert decoded.first_failure() is None, decoded.why
        assert decoded.columns.equals(batch)


def test_msgpack_takes_arrays_in_the_order_of_the_schema() -> None:
    """Rows without names are common in msgpack."""
    value = msgpack.packb([1, "x", None, [3], "2024-01-01", msgpack.Timestamp(5)])
    (row,) = named("msgpack").decode(binary(value), SCHEMA).columns.to_pylist()
    assert row == {
        "a": 1,
        "s": "x",
        "f": None,
        "l": [3],
        "d": dt.date(2024, 1, 1),
        "t": dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC),
    }


def test_text_and_bytes_are_one_column() -> None:
    """Text is checked, bytes are not."""
    raw = pa.schema([("value", pa.binary())])
    text = pa.schema([("name", pa.string())])
    values = binary(b"a", b"\xff", "é".encode())
    assert named("binary").decode(values, raw).columns.column(0).to_pylist() == values.to_pylist()
    decoded = named("utf8").decode(values, text)
    assert (decoded.bad.tolist(), decoded.why) == ([False, True, False], "not UTF-8")
    assert decoded.columns.column(0).to_pylist() == ["a", None, "é"]
    assert named("utf8").encode(decoded.columns.slice(2)).to_pylist() == ["é".encode()]
    with pytest.raises(InvalidValue, match="row 1 has no text"):
        named("utf8").encode(decoded.columns)


@pytest.mark.parametrize(
    ("name", "schema", "message"),
    [
        ("binary", SCHEMA, "one column of type binary"),
        ("utf8", pa.schema([("x", pa.binary())]), "one column of type string"),
        ("json", pa.schema([("x", pa.list_(pa.binary()))]), "'x' is binary"),
        ("avro", pa.schema([("unknown", pa.int64())]), "no field 'unknown'"),
        ("no_such_module:x", SCHEMA, "cannot import no_such_module"),
    ],
)
def test_a_schema_that_a_format_cannot_have_is_refused_first(name: str, schema: Any, message: str) -> None:
    """Before any row is read."""
    with pytest.raises(InvalidRequestError, match=message):
        named(name).check(schema)


def test_unknown_formats_are_refused() -> None:
    """The error lists the supported formats."""
    with pytest.raises(InvalidRequestError, match="'xml': use one of binary, utf8, json, msgpack, avro"):
        value_codec("xml")
    with pytest.raises(InvalidRequestError, match="avro_schema"):
        value_codec("avro")
    with pytest.raises(InvalidRequestError, match="avro_schema"):
        value_codec("avro", avro_schema="{").check(SCHEMA)
    for other in ('["null", "string"]', '"int"', "5", "null", "[]"):
        with pytest.raises(InvalidRequestError, match="avro_schema: must be of type record"):
            value_codec("avro", avro_schema=other).check(SCHEMA)
    with pytest.raises(InvalidRequestError, match="avro_schema: "):
        value_codec("avro", avro_schema='{"type": "record", "name": "r", "fields": 5}').check(SCHEMA)


def test_a_row_that_cannot_be_encoded_is_named() -> None:
    """By its position in the batch."""
    schema = pa.schema([("a", pa.int64())])
    strict = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})
    batch = pa.RecordBatch.from_pylist([{"a": 1}, {"a": None}], schema=schema)
    with pytest.raises(InvalidValue, match="row 1 cannot be written"):
        value_codec("avro", avro_schema=strict).encode(batch)
