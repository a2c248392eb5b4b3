"""What a codec is."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Objects to bytes and back: ``decode(encode(value)) == value``."""

    @property
    def keeps_order(self) -> bool:
        """Whether bytes are ordered as the objects are, so that a range of objects is a range of keys."""
        ...

    def encode(self, value: T) -> bytes:
        """An object as bytes.

        Raises:
            InvalidRequestError: it cannot be stored this way.
        """
        ...

    def decode(self, data: bytes) -> T:
        """The object that was stored.

        Raises:
            InvalidRequestError: these bytes were not made by this codec.
        """
        ...
