"""Outlines of bodies: what they count, and that the pieces of a body are decoded as the whole body is."""

import json
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shale.kernels import outline as outlines
from shale.kernels.layout.outline import (
    COMPLETE,
    ITEM_TOO_LARGE,
    MALFORMED,
    NOT_AN_OBJECT,
    PIECE,
    TOO_MANY,
    TOO_MANY_FIELDS,
)
from shale.kernels.outline import outline
from shale.service.http import documents
from shale.service.http.problems import Problem

PIECE_ELEMENTS = 4
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.floats(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(st.text(max_size=6), st.lists(VALUES, max_size=14) | VALUES, max_size=4)


def whole(data: bytes, *, packed: bool) -> Any:
    """What a decoder makes of a body; None if it is malformed or no object."""
    try:
        value = msgpack.unpackb(data, use_list=False, strict_map_key=True) if packed else orjson.loads(data)
    except (ValueError, msgpack.UnpackException):
        return None
    return value if isinstance(value, dict) else None


def in_pieces(data: bytes, *, packed: bool) -> Any:
    """What the marks of a body are decoded to; None if it is refused as malformed."""
    found = outline(data, packed=packed, elements_max=1 << 20, piece_elements=PIECE_ELEMENTS)
    assert found.status in (COMPLETE, MALFORMED, NOT_AN_OBJECT, ITEM_TOO_LARGE)
    if found.status == ITEM_TOO_LARGE:
        return ...
    if found.status != COMPLETE:
        return None
    try:
        return documents.decode_pieces(data, found.marks, packed=packed)
    except Problem:
        return None


def plain(value: Any) -> Any:
    """A value with tuples for lists, and floats that equal themselves."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else repr(value)


def assert_same(data: bytes, *, packed: bool) -> None:
    found = in_pieces(data, packed=packed)
    if found is not ...:
        assert plain(found) == plain(whole(data, packed=packed)), data


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + count(each) for each in value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list | tuple) else 1


@given(body=BODIES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_pieces_of_json_are_decoded_as_the_whole_body(
    body: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    assert_same(json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"), packed=False)


@given(body=BODIES)
def test_pieces_of_msgpack_are_decoded_as_the_whole_body(body: dict[str, Any]) -> None:
    assert_same(msgpack.packb(body, unicode_errors="surrogatepass"), packed=True)


@pytest.mark.parametrize("packed", [False, True])
@given(body=BODIES, cuts=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=3), data=st.data())
def test_a_damaged_body_is_refused_if_the_decoder_refuses_it(packed: bool, body: Any, cuts: Any, data: Any) -> None:
    encoded = msgpack.packb(body, unicode_errors="surrogatepass") if packed else json.dumps(body).encode()
    for place, change in cuts:
        at = place % (len(encoded) + 1)
        encoded = encoded[:at] + change + encoded[at + data.draw(st.integers(0, 3)) :]
    assert_same(encoded, packed=packed)


TOKENS = st.lists(
    st.sampled_from([*'{}[],:"', '"a"', '"ops"', "1", " ", "\\", "\n", "x", '{"a":[', "1,2,3,4,5,6"]), max_size=30
)


@given(tokens=TOKENS)
@example(['{"a":[', "1,2,3,4,5,6", ",", "]", "}"])
@example(['{"a":[', "1,2,3,4,5,6", "]", "x", "}"])
@example(['{"a":[', "1,2,3,4,5,6", "]", "[", "]", "}"])
@example(['{"a":[', "1,2,3,4,5,6", "}", "}"])
@example(["{", '"a"', ":", "1", "[", "1,2,3,4,5,6", "]", "}"])
@example(['{"a":[', "1,2,3,4,5,6", "]", '"a"', "}"])
@example(['{"a":[', "1,2,3,4,5,6", "]", "}", "}"])
@example(['{"a":[', "1,2,3,4,5,6", "]", ",", "}"])
@example(["{", '"a"', ":", "1", ":", "2", "}"])
def test_any_mixture_of_tokens_is_decoded_as_the_whole_body(tokens: list[str]) -> None:
    assert_same("".join(tokens).encode(), packed=False)


@given(data=st.binary(max_size=40), count=st.integers(0, 15))
def test_any_bytes_after_a_map_header_are_decoded_as_the_whole_body(data: bytes, count: int) -> None:
    assert_same(bytes([0x80 | count]) + data, packed=True)


@given(body=BODIES)
def test_elements_of_msgpack_are_counted(body: dict[str, Any]) -> None:
    encoded = msgpack.packb(body, unicode_errors="surrogatepass")
    found = outline(encoded, packed=True, elements_max=1 << 20)
    assert (found.status, found.elements) == (COMPLETE, count(body))
    assert outline(encoded, packed=True, elements_max=count(body)).status == COMPLETE
    few = outline(encoded, packed=True, elements_max=count(body) - 2)  # an empty list at the end is not checked
    assert few.status == (TOO_MANY if body else COMPLETE)


@pytest.mark.slow
@given(body=BODIES)
def test_elements_of_json_are_never_more_than_counted(body: dict[str, Any]) -> None:
    found = outline(json.dumps(body).encode(), packed=False, elements_max=1 << 20)
    assert count(body) <= found.elements <= 2 * count(body)


@pytest.mark.parametrize("packed", [False, True])
@given(body=BODIES)
def test_without_kernels_a_body_is_counted_alike(packed: bool, body: dict[str, Any]) -> None:
    encoded = msgpack.packb(body, unicode_errors="surrogatepass") if packed else json.dumps(body).encode()
    by_kernel = outline(encoded, packed=packed, elements_max=1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlines, "use_kernels", lambda: False)
        found = outline(encoded, packed=packed, elements_max=1 << 20)
        assert outline(encoded, packed=packed, elements_max=0).status == TOO_MANY
    assert (found.status, found.text_bytes, found.marks) == (COMPLETE, by_kernel.text_bytes, [])
    assert found.elements >= by_kernel.elements
    assert found.elements == by_kernel.elements or not packed


def test_a_long_list_is_cut_and_one_large_item_is_refused() -> None:
    body = {"ops": [["put", "k", "v"]] * 50}
    for packed, encoded in ((False, json.dumps(body).encode()), (True, msgpack.packb(body))):
        found = outline(encoded, packed=packed, elements_max=1000, piece_elements=20)
        pieces = [mark for mark in found.marks if mark[0] == PIECE]
        assert sum(mark[3] for mark in pieces) == 50
        assert max(mark[3] for mark in pieces) <= 6
        item = {"ops": [[["put"] * 50]]}
        large = msgpack.packb(item) if packed else json.dumps(item).encode()
        assert outline(large, packed=packed, elements_max=1000, piece_elements=20).status == ITEM_TOO_LARGE


@pytest.mark.parametrize("packed", [False, True])
def test_an_object_of_many_fields_is_refused(packed: bool) -> None:
    body = {str(number): 0 for number in range(300)}
    encoded = msgpack.packb(body) if packed else json.dumps(body).encode()
    assert outline(encoded, packed=packed, elements_max=1 << 17).status == TOO_MANY_FIELDS


@pytest.mark.parametrize("text", ["é" * 20, "\\u00e9" * 20, "a" * 100 + "😀"])
def test_text_beyond_ascii_is_noted(text: str) -> None:
    encoded = b'{"a":"%b"}' % text.encode()
    assert outline(encoded, packed=False, elements_max=10).text_bytes == len(encoded)
    assert outline(b'{"a":"%b"}' % (b"a\\/" * 20), packed=False, elements_max=10).text_bytes == 0
