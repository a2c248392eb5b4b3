"""The type of keys, values and stored bytes: any object that is bytes in memory."""

from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
