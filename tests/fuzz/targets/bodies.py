"""The outline of a request body: the kernel that counts and cuts it, in guarded memory, against whole decoding."""

import random
from typing import Any

import msgpack
import orjson

from shale.kernels.layout.outline import COMPLETE, MALFORMED, NOT_AN_OBJECT
from shale.kernels.outline import outline
from shale.service.http.documents import decode, decode_pieces
from shale.service.http.problems import Problem
from tests.fuzz.mutation import any_of, words_mutation
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets.http import mutate_msgpack
from tests.fuzz.targets.metadata import JSON_MUTATION, JSON_WORDS
from tests.guarded import Side, guarded_array, guarded_numpy

_ELEMENTS_MAX = 2000


def _outline(data: bytes) -> None:
    """The first byte: msgpack or JSON, side of the guard page, and elements of a piece."""
    options, body = (data or b"\0")[0], data[1:]
    packed, pieces = bool(options & 1), 1 + (options >> 2)
    with guarded_numpy(Side(options >> 1 & 1)):
        memory: Any = guarded_array(body)
        found = outline(memory, packed=packed, elements_max=_ELEMENTS_MAX, piece_elements=pieces)
        if not all(0 <= start <= end <= len(body) for _, start, end, _ in found.marks):
            raise Difference(f"a mark is outside of the body: {found.marks}")
    whole = _attempt(lambda: decode(body, packed=packed))
    if found.status in (MALFORMED, NOT_AN_OBJECT) and isinstance(whole, dict):
        raise Difference(f"an outline refuses an object: status {found.status}")
    if found.status == COMPLETE and found.marks:
        in_pieces = _attempt(lambda: decode_pieces(body, found.marks, packed=packed))
        if isinstance(whole, dict) or isinstance(in_pieces, dict):
            require_equal("a body in pieces and as a whole", _shown(in_pieces), _shown(whole))
    if found.status == COMPLETE and isinstance(whole, dict) and _count(whole) > found.elements:
        raise Difference(f"an outline counts {found.elements} of {_count(whole)} elements")


def _attempt(read: Any) -> Any:
    try:
        return read()
    except Problem:
        return None


def _shown(value: Any) -> str:
    """Return a text that is equal for equal values, whether lists are tuples or not, and also for NaN."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(name)}: {_shown(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple) and not isinstance(value, msgpack.ExtType):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


def _count(value: Any) -> int:
    """Count an object without its repeated names."""
    below: Any = ()
    if isinstance(value, dict):
        below = (*value, *value.values())
    elif isinstance(value, list | tuple) and not isinstance(value, msgpack.ExtType):
        below = value
    return 1 + sum(map(_count, below)) if below else 1


def _bodies() -> list[bytes]:
    fields: list[dict[str, Any]] = [
        {},
        {"ops": [["put", "a", "b"], {"op": "delete", "key": 'x"\\'}] * 5, "more": None, "é": -1.5e3},
        {"keys": ["k"] * 30, "nested": {"a": [[], {}, [1, [2, [3]]]]}},
    ]
    numbers = {"a": b"x" * 300, "b": [2**63, -(2**40), 1.5, True, msgpack.ExtType(5, b"abc")]}
    texts = [orjson.dumps(each) for each in fields]
    texts += [orjson.dumps(each, option=orjson.OPT_INDENT_2) for each in fields]
    packed = [bytes(msgpack.packb(each) or b"") for each in (*fields, numbers)]
    heads = [(side << 1 | size << 2, texts, packed) for side in (0, 1) for size in (0, 3)]
    return [
        bytes([head | is_msgpack]) + body
        for head, *bodies in heads
        for is_msgpack in (0, 1)
        for body in bodies[is_msgpack]
    ]


def _mutate(rng: random.Random, data: bytes) -> bytes:
    head, body = data[:1] or b"\0", data[1:]
    if rng.random() < 0.05:
        head = bytes([rng.randrange(256)])
    change = mutate_msgpack if head[0] & 1 else any_of(JSON_MUTATION, words_mutation(JSON_WORDS))
    return head + change(rng, body)


def targets() -> list[Target]:
    modules = ("shale.kernels.outline", "shale.service.http.documents")
    return [Target("kernel outline", _outline, _bodies, (), modules, _mutate, weight=2)]
