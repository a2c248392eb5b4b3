"""The interface of a codec."""

from typing import Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Converts objects to bytes and back: ``decode(encode(value)) == value``."""

    @property
    def keeps_order(self) -> bool:
        """Whether bytes have the order of the objects, so that a range of objects is a range of keys."""
        ...

    def encode(self, value: T) -> bytes:
        """Return an object as bytes.

        Raises:
            InvalidRequestError: it cannot be stored this way.
        """
        ...

    def decode(self, data: bytes) -> T:
        """Return the object that was stored.

        Raises:
            InvalidRequestError: these bytes were not made by this codec.
        """
        ...
