"""Codecs of simple values; most of them keep the order."""

import re
import struct
from dataclasses import field
from typing import Any, Final

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError, WrongType

_INT_BYTES: Final = 8
_INT_OFFSET: Final = 1 << 63
_ORDERED_FORMAT: Final = re.compile(r"[>!](?:\d*[BHILQsc?])+")


@dataclass(frozen=True, slots=True)
class BytesCodec:
    """Bytes as they are."""

    keeps_order: bool = field(default=True, init=False)

    def encode(self, value: bytes) -> bytes:
        """See ``Codec``."""
        if not isinstance(value, BytesLike):
            raise WrongType(f"bytes are wanted, not {type(value).__name__}")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """See ``Codec``."""
        return data


@dataclass(frozen=True, slots=True)
class TextCodec:
    """UTF-8, which has the order of code points, as ``str`` has."""

    keeps_order: bool = field(default=True, init=False)

    def encode(self, value: str) -> bytes:
        """See ``Codec``."""
        if not isinstance(value, str):
            raise WrongType(f"text is wanted, not {type(value).__name__}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(f"text that is not Unicode: {error}") from error

    def decode(self, data: bytes) -> str:
        """See ``Codec``."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"not UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class IntCodec:
    """Integers of 64 bits: 8 bytes, big-endian, with 2**63 added, so that negative ones come first."""

    keeps_order: bool = field(default=True, init=False)

    def encode(self, value: int) -> bytes:
        """See ``Codec``."""
        if type(value) is not int:
            raise WrongType(f"an integer is wanted, not {type(value).__name__}")
        if not -_INT_OFFSET <= value < _INT_OFFSET:
            raise InvalidRequestError(f"{value} does not fit into 64 bits")
        return (value + _INT_OFFSET).to_bytes(_INT_BYTES, "big")

    def decode(self, data: bytes) -> int:
        """See ``Codec``."""
        if len(data) != _INT_BYTES:
            raise InvalidRequestError(f"an integer has {_INT_BYTES} bytes, not {len(data)}")
        return int.from_bytes(data, "big") - _INT_OFFSET


@dataclass(frozen=True, slots=True)
class StructCodec:
    """Tuples in a layout of the module ``struct``.

    Order is kept by big-endian formats (``>`` or ``!``) of unsigned integers, booleans and byte strings of a fixed
    length.
    """

    format: str

    def __post_init__(self) -> None:
        try:
            struct.calcsize(self.format)
        except struct.error as error:
            raise InvalidRequestError(f"struct format {self.format!r}: {error}") from error

    @property
    def keeps_order(self) -> bool:
        """See ``Codec``."""
        return _ORDERED_FORMAT.fullmatch(self.format) is not None

    def encode(self, value: tuple[Any, ...]) -> bytes:
        """See ``Codec``."""
        try:
            return struct.pack(self.format, *value)
        except (struct.error, TypeError, OverflowError) as error:
            raise InvalidRequestError(f"{value!r} does not fit into {self.format!r}: {error}") from error

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """See ``Codec``."""
        try:
            return struct.unpack(self.format, data)
        except struct.error as error:
            raise InvalidRequestError(f"not of format {self.format!r}: {error}") from error


BYTES: Final = BytesCodec()
TEXT: Final = TextCodec()
INT: Final = IntCodec()
struct_of: Final = StructCodec
