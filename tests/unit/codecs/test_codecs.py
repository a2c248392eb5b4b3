"""Codecs return the values they were given, and order-preserving ones keep the order."""

import dataclasses
import math
from datetime import UTC, date, datetime
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale import codecs
from shale.errors import InvalidRequestError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
DOCUMENTS: Any = st.recursive(
    st.none() | st.booleans() | I64 | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@dataclasses.dataclass(frozen=True)
class Order:
    item: str
    count: int
    day: date


class Reading(pydantic.BaseModel, extra="forbid"):
    level: float | None

    @pydantic.computed_field
    @property
    def is_known(self) -> bool:
        return self.level is not None


class OneWay(pydantic.BaseModel):
    number: int = pydantic.Field(validation_alias="inside", serialization_alias="outside")


class Customer(pydantic.BaseModel):
    name: str
    orders: list[Order] = []


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        pytest.param(codecs.BYTES, st.binary(), id="bytes"),
        pytest.param(codecs.TEXT, TEXTS, id="text"),
        pytest.param(codecs.INT, I64, id="int"),
        pytest.param(codecs.JSON, DOCUMENTS, id="json"),
        pytest.param(codecs.MSGPACK, DOCUMENTS | st.datetimes(timezones=st.just(UTC)), id="msgpack"),
        pytest.param(codecs.struct_of(">qd?"), st.tuples(I64, st.floats(allow_nan=False), st.booleans()), id="struct"),
        pytest.param(codecs.typed(Order), st.builds(Order, item=TEXTS, count=I64), id="dataclass"),
        pytest.param(codecs.typed(Customer), st.builds(Customer, name=TEXTS, orders=st.just([])), id="model"),
        pytest.param(codecs.typed(Reading), st.builds(Reading, level=st.none() | st.just(1.5)), id="computed"),
        pytest.param(codecs.typed(dict[str, int]), st.dictionaries(TEXTS, I64, max_size=3), id="annotation"),
    ],
)
def test_codecs_return_the_encoded_values(codec: Any, values: Any) -> None:
    @given(values)
    def check(value: Any) -> None:
        assert codec.decode(codec.encode(value)) == value

    check()


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        pytest.param(codecs.BYTES, st.binary(), id="bytes"),
        pytest.param(codecs.TEXT, TEXTS, id="text"),
        pytest.param(codecs.INT, I64 | st.integers(-3, 3), id="int"),
        pytest.param(
            codecs.struct_of(">HQ3s?"),
            st.tuples(
                st.integers(0, 65535), st.integers(0, (1 << 64) - 1), st.binary(min_size=3, max_size=3), st.booleans()
            ),
            id="struct",
        ),
    ],
)
def test_order_is_kept_where_that_is_said(codec: Any, values: Any) -> None:
    assert codec.keeps_order

    @given(values, values)
    def check(left: Any, right: Any) -> None:
        assert (codec.encode(left) < codec.encode(right)) == (left < right)

    check()


@pytest.mark.parametrize("codec", [codecs.JSON, codecs.MSGPACK, codecs.typed(int)])
def test_documents_do_not_keep_order(codec: Any) -> None:
    assert not codec.keeps_order


@pytest.mark.parametrize("layout", ["<I", ">i", ">d", "=H", "I", ">Hx", ">Hh", ">"])
def test_layouts_whose_bytes_are_in_another_order_do_not_say_so(layout: str) -> None:
    assert not codecs.struct_of(layout).keeps_order


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.BYTES, "text"), (codecs.TEXT, b"bytes"), (codecs.TEXT, "\ud800"), (codecs.INT, 1 << 63),
        (codecs.INT, True),
        (codecs.INT, 1.0), (codecs.JSON, {1, 2}), (codecs.JSON, b""), (codecs.MSGPACK, object()),
        (codecs.MSGPACK, 1 << 64),
        (codecs.JSON, math.nan), (codecs.JSON, {"a": [math.inf, "null"]}), (codecs.typed(float), math.nan),
        (codecs.typed(Reading), Reading(level=-math.inf)), (codecs.typed(OneWay), OneWay(inside=1)),
        (codecs.struct_of(">f"), (1e300,)),
        (codecs.struct_of("B"), (256,)), (codecs.struct_of("B"), 1), (codecs.typed(Order), {"item": "x"}),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused(codec: Any, value: Any) -> None:
    with pytest.raises(InvalidRequestError):
        codec.encode(value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (codecs.TEXT, b"\xff"), (codecs.INT, b"1234567"), (codecs.JSON, b"{"), (codecs.MSGPACK, b"\xc1"),
        (codecs.MSGPACK, b"\x01\x02"), (codecs.MSGPACK, b"\x81\x91\x01\x01"),
        (codecs.MSGPACK, b"\xc7\x0c\xff\0\0\0\0\x7f" + b"\xff" * 7),
        (codecs.struct_of("I"), b"123"), (codecs.typed(Order), b'{"item": 1}'),
    ],
)  # fmt: skip
def test_what_was_not_stored_this_way_is_refused(codec: Any, data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        codec.decode(data)


def test_an_impossible_layout_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequestError, match="struct format"):
        codecs.struct_of("Z")


def test_equal_documents_are_equal_bytes() -> None:
    assert codecs.JSON.encode({"b": 1, "a": 2}) == codecs.JSON.encode({"a": 2, "b": 1})
    assert codecs.JSON.encode(datetime(2024, 1, 2, tzinfo=UTC)) == b'"2024-01-02T00:00:00+00:00"'
