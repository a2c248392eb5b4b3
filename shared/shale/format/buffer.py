"""What codecs read from: any object that is bytes in memory."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
