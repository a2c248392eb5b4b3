"""The type of keys, values and stored bytes: any object that is bytes in memory."""

from typing import TypeAlias

from shale.errors import WrongType

BytesLike: TypeAlias = bytes | bytearray | memoryview


def not_bytes(what: str, value: object) -> WrongType:
    """Return the error for an argument that is not bytes in memory."""
    hint = f"; encode text, for example with {what}.encode()" if isinstance(value, str) else ""
    return WrongType(f"{what} must be bytes-like, not {type(value).__name__}{hint}")
