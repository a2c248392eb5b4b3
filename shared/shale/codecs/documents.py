"""Codecs of structured values: JSON, msgpack, and types with fields."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

T = TypeVar("T")

_NO_NUMBER: Final = "JSON has no infinity and no NaN: they would be read as null"


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """JSON with sorted names, so that equal values have equal bytes."""

    keeps_order: bool = field(default=False, init=False)

    def encode(self, value: Any) -> bytes:
        """See ``Codec``."""
        import orjson

        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            raise InvalidRequestError(f"no JSON: {error}") from error
        if b"null" in data and _holds_no_number(value):
            raise InvalidRequestError(f"no JSON: {_NO_NUMBER}")
        return data

    def decode(self, data: bytes) -> Any:
        """See ``Codec``."""
        import orjson

        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InvalidRequestError(f"not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class MsgpackCodec:
    """Msgpack with times; tuples are read as lists."""

    keeps_order: bool = field(default=False, init=False)

    def encode(self, value: Any) -> bytes:
        """See ``Codec``."""
        import msgpack

        try:
            return msgpack.packb(value, datetime=True)  # type: ignore[no-any-return]
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequestError(f"no msgpack: {error}") from error

    def decode(self, data: bytes) -> Any:
        """See ``Codec``."""
        import msgpack

        try:
            return msgpack.unpackb(data, timestamp=3, strict_map_key=False)
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise InvalidRequestError(f"not msgpack: {error}") from error


class TypedCodec(Generic[T]):
    """Values of one type as JSON that pydantic writes and checks: its models, dataclasses, typed dicts, unions, …

    ``encode`` reads its output back, so a type whose JSON pydantic cannot read (aliases for one direction only) is
    refused when a value is stored, not when it is read.

    Args:
        type_: what is stored; anything that ``pydantic.TypeAdapter`` takes.
    """

    keeps_order = False

    def __init__(self, type_: type[T]) -> None:
        self._type = type_

    def encode(self, value: T) -> bytes:
        """See ``Codec``."""
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError

        adapter = self._adapter
        try:
            valid = adapter.validate_python(value)
            data: bytes = adapter.dump_json(valid, by_alias=True, round_trip=True)
            adapter.validate_json(data)
            has_no_number = b"null" in data and _holds_no_number(adapter.dump_python(valid, round_trip=True))
        except (ValidationError, PydanticSerializationError) as error:
            raise InvalidRequestError(f"no {self._name}: {error}") from error
        if has_no_number:
            raise InvalidRequestError(f"no {self._name}: {_NO_NUMBER}")
        return data

    def decode(self, data: bytes) -> T:
        """See ``Codec``."""
        from pydantic import ValidationError

        try:
            value: T = self._adapter.validate_json(data)
        except ValidationError as error:
            raise InvalidRequestError(f"not a {self._name}: {error}") from error
        return value

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self._type)

    @property
    def _name(self) -> str:
        return getattr(self._type, "__name__", repr(self._type))


def _holds_no_number(value: Any) -> bool:
    """Return whether the value contains a float that JSON cannot write."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_holds_no_number, value.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_holds_no_number(getattr(value, each.name)) for each in dataclasses.fields(value))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_holds_no_number, value))


JSON: Final = JsonCodec()
MSGPACK: Final = MsgpackCodec()
typed: Final = TypedCodec
