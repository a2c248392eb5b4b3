"""Built-in merge operators, and the lookup of operators by the names used in options and settings.

An operator is ``(key, existing value or None, operands oldest first) -> value``.  It must be associative, because
operands are folded in any grouping, and every process that uses the database must have the same operator.

A setting can name an operator: one of ``BUILT_IN``, one that an installed distribution registers, or
``module:attribute`` (docs/how-to/compaction-filters.md).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from shale.errors import WrongType
from shale.plugins import MERGE_OPERATORS, resolve

if TYPE_CHECKING:
    from shale.iter.merge_operator import MergeOperator

_INT_BYTES = 8
_INT_VALUES = 1 << 64
_MANY_DIGITS = re.compile(rb"\d{19}")
"""Fewer digits always fit into 64 bits."""


def concatenate(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Join the values, oldest first."""
    return b"".join(operands) if existing is None else b"".join((existing, *operands))


def int_add(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Add signed 64-bit integers, stored in 8 bytes, little-endian; the sum wraps around on overflow."""
    total = sum(_ints(existing, operands)) % _INT_VALUES
    return total.to_bytes(_INT_BYTES, "little")


def int_max(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Return the greatest of signed 64-bit integers, stored as for ``int_add``."""
    return max(_ints(existing, operands)).to_bytes(_INT_BYTES, "little", signed=True)


def int_min(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Return the least of signed 64-bit integers, stored as for ``int_add``."""
    return min(_ints(existing, operands)).to_bytes(_INT_BYTES, "little", signed=True)


def json_set_union(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Return the union of JSON arrays as sets; the result is ordered by the JSON text of its elements.

    Integers beyond 64 bits are refused: they would be read as floats, and different ones could become equal.
    """
    import orjson

    def elements(data: bytes) -> Iterable[bytes]:
        array = _array(orjson.loads(data))
        if _MANY_DIGITS.search(data):
            json.loads(data, parse_int=_integer)
        return (orjson.dumps(element, option=orjson.OPT_SORT_KEYS) for element in array)

    return b"[" + b",".join(_union(elements, existing, operands)) + b"]"


def msgpack_set_union(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Return the union of msgpack arrays as sets; the result is ordered by the packed bytes of its elements.

    Maps whose keys are equal in Python (1, 1.0 and true) are refused: they would lose entries.
    """
    import msgpack

    def unpacked(data: bytes) -> Any:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=_map)

    def packed(element: Any) -> bytes:
        return msgpack.packb(_ordered(element, packed), use_bin_type=True)  # type: ignore[no-any-return]

    def elements(data: bytes) -> Iterable[bytes]:
        return map(packed, _array(unpacked(data)))

    union = _union(elements, existing, operands)
    return b"".join((msgpack.Packer().pack_array_header(len(union)), *union))


BUILT_IN: "Mapping[str, MergeOperator]" = {
    "concatenate": concatenate,
    "int_add": int_add,
    "int_max": int_max,
    "int_min": int_min,
    "json_set_union": json_set_union,
    "msgpack_set_union": msgpack_set_union,
}


def operator_by_name(name: str) -> "MergeOperator":
    """Return the operator of a name.

    Raises:
        InvalidRequestError: the name is not registered, or the operator cannot be imported or called.
    """
    found = BUILT_IN.get(name)
    return resolve(MERGE_OPERATORS, name, BUILT_IN) if found is None else found


def require_operator(given: Any) -> "MergeOperator":
    """Return the operator of an option, which is one, or the name of one.

    Raises:
        InvalidRequestError: the name is unknown.
        WrongType: the object is not callable.
    """
    operator: MergeOperator = operator_by_name(given) if isinstance(given, str) else given
    if not callable(operator):
        raise WrongType(f"merge_operator: {given!r} is not callable")
    return operator


def resolve_operator(given: "MergeOperator | str | None") -> "MergeOperator | None":
    """Return the operator of an option, wrapped so that its errors name the operator and the key.

    Raises:
        InvalidRequestError: the name is unknown, or the object is not callable.
    """
    if given is None:
        return None
    operator = require_operator(given)
    name = given if isinstance(given, str) else getattr(given, "__qualname__", type(given).__name__)
    from shale.iter.merge_operator import checked_operator  # with numpy, which a process without operators may not need

    return checked_operator(operator, name)


def _ints(existing: bytes | None, operands: Sequence[bytes]) -> list[int]:
    given = operands if existing is None else (existing, *operands)
    if any(len(each) != _INT_BYTES for each in given):
        raise ValueError("integers are stored in 8 bytes, little-endian")
    return [int.from_bytes(each, "little", signed=True) for each in given]


def _integer(digits: str) -> int:
    """Parse a JSON integer; refuse one that would lose digits."""
    value = int(digits)
    if not -_INT_VALUES // 2 <= value < _INT_VALUES:
        raise ValueError("integers of more than 64 bits cannot be told apart")
    return value


def _map(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map has the same key twice")
    return found


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"sets are stored as arrays, not as {type(value).__name__}")
    return value


def _union(
    elements: Callable[[bytes], Iterable[bytes]], existing: bytes | None, operands: Sequence[bytes]
) -> list[bytes]:
    given = operands if existing is None else (existing, *operands)
    return sorted(set(chain.from_iterable(map(elements, given))))


def _ordered(element: Any, packed: Callable[[Any], bytes]) -> Any:
    """Return the value with the entries of every map ordered by packed key."""
    if isinstance(element, dict):
        pairs = sorted((packed(key), key) for key in element)
        return {key: _ordered(element[key], packed) for _, key in pairs}
    if isinstance(element, list):
        return [_ordered(each, packed) for each in element]
    return element
