"""Codecs of structured values: JSON, msgpack, and types with fields."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from shale.errors import InvalidRequestError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """JSON, with the names of objects in order, so that equal values are equal bytes."""

    keeps_order: bool = field(default=False, init=False)

    def encode(self, value: Any) -> bytes:
        """See ``Codec``."""
        import orjson

        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            raise InvalidRequestError(f"no JSON: {error}") from error

    def decode(self, data: bytes) -> Any:
        """See ``Codec``."""
        import orjson

        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InvalidRequestError(f"not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class MsgpackCodec:
    """Msgpack with times; tuples come back as lists."""

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
        except (ValueError, msgpack.UnpackException) as error:
            raise InvalidRequestError(f"not msgpack: {error}") from error


class TypedCodec(Generic[T]):
    """Values of one type as JSON that pydantic writes and checks: its models, dataclasses, typed dicts, unions, …

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

        try:
            return self._adapter.dump_json(self._adapter.validate_python(value), by_alias=True)  # type: ignore[no-any-return]
        except (ValidationError, PydanticSerializationError) as error:
            raise InvalidRequestError(f"no {self._name}: {error}") from error

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


JSON: Final = JsonCodec()
MSGPACK: Final = MsgpackCodec()
typed: Final = TypedCodec
