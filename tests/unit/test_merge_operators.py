"""The operators of the library: their results, which are the same for any grouping of operands."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import InvalidRequestError, MergeOperatorFailed
from shale.merge_operators import BUILT_IN, operator_by_name, resolve_operator

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
INTS = st.integers(-(2**63), 2**63 - 1).map(lambda number: number.to_bytes(8, "little", signed=True))
OPERANDS = {
    "concatenate": st.binary(max_size=4),
    "int_add": INTS,
    "int_max": INTS,
    "int_min": INTS,
    "json_set_union": st.lists(JSON, max_size=3).map(orjson.dumps),
    "msgpack_set_union": st.lists(JSON | st.binary(max_size=2), max_size=3).map(msgpack.packb),
}


def i64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    ("name", "existing", "operands", "value"),
    [
        pytest.param("concatenate", b"a", [b"b", b"c"], b"abc", id="concatenate"),
        pytest.param("int_add", i64(40), [i64(3), i64(-1)], i64(42), id="add"),
        pytest.param("int_add", i64(2**63 - 1), [i64(1)], i64(-(2**63)), id="add wraps around"),
        pytest.param("int_max", None, [i64(-7), i64(-9)], i64(-7), id="max"),
        pytest.param("int_min", i64(3), [i64(-7), i64(9)], i64(-7), id="min"),
        pytest.param("json_set_union", b'[2,"b"]', [b'["a",2,true,1]', b"[]"], b'["a","b",1,2,true]', id="json"),
        pytest.param(
            "json_set_union",
            b"[18446744073709551615]",
            [b'[-9223372036854775808,"12345678901234567890123"]'],
            b'["12345678901234567890123",-9223372036854775808,18446744073709551615]',
            id="json integers of 64 bits",
        ),
        pytest.param(
            "json_set_union", None, [b'[{"b":1,"a":2}]', b'[ {"a":2,"b":1} ]'], b'[{"a":2,"b":1}]', id="json objects"
        ),
        pytest.param(
            "msgpack_set_union",
            msgpack.packb([1, {"b": 1, "a": 2}]),
            [msgpack.packb([{"a": 2, "b": 1}, b"x", 1])],
            msgpack.packb([1, {"a": 2, "b": 1}, b"x"]),
            id="msgpack",
        ),
    ],
)
def test_values(name: str, existing: bytes | None, operands: Sequence[bytes], value: bytes) -> None:
    assert operator_by_name(name)(b"k", existing, operands) == value


@pytest.mark.parametrize("name", BUILT_IN)
@given(data=st.data())
def test_any_grouping_gives_the_same(name: str, data: Any) -> None:
    operator = BUILT_IN[name]
    operands = data.draw(st.lists(OPERANDS[name], min_size=2, max_size=6))
    at_once = operator(b"k", operands[0], operands[1:])
    cut = data.draw(st.integers(1, len(operands) - 1))
    later = operator(b"k", None, operands[cut:])
    assert operator(b"k", operator(b"k", None, operands[:cut]), [later]) == at_once
    assert reduce(lambda value, operand: operator(b"k", value, [operand]), operands[1:], operands[0]) == at_once


@pytest.mark.parametrize(
    ("name", "operand"),
    [("int_add", b"12"), ("int_max", b""), ("json_set_union", b"{}"), ("json_set_union", b"["),
     ("json_set_union", b"[18446744073709551616]"), ("json_set_union", b"[-9223372036854775809]"),
     ("msgpack_set_union", b"\x91\x82\x01\x02\xc3\x03"),
     ("msgpack_set_union", b"\x01"), ("msgpack_set_union", b"")],
)  # fmt: skip
def test_operands_that_are_none_are_named(name: str, operand: bytes) -> None:
    operator = resolve_operator(name)
    assert operator is not None
    with pytest.raises(MergeOperatorFailed, match=f"merge operator '{name}' raised .* for key"):
        operator(b"k", None, [operand])


def test_operators_are_callables_or_names() -> None:
    assert resolve_operator(None) is None
    checked = resolve_operator(lambda _key, existing, operands: bytearray(b"".join([existing or b"", *operands])))
    assert checked is not None
    assert checked(b"k", b"a", [b"b"]) == b"ab"
    assert operator_by_name("os.path:join").__name__ == "join"
    for wrong in ("no_such_operator", "", 7):
        with pytest.raises(InvalidRequestError):
            resolve_operator(wrong)  # type: ignore[arg-type]
