"""The memory that one scan has for large values: a merge holds a block of each source."""

from shale.errors import ShaleError
from shale.sst.budget import LARGE_VALUE_BYTES

_COPIES_OF_OUTPUT = 4
"""Of a value that the scan returns: the merged rows, the row as an object, and a third more than it when encoded."""


class ScanRoomExceeded(ShaleError):
    """A scan needs more memory: its sources are dropped, and opened again once it has that."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the scan needs memory for {size_bytes} bytes of large values")
        self.size_bytes = size_bytes


class ScanRoom:
    """What one scan may hold.

    Attributes:
        size_bytes: how much memory the scan has for large values.
        sources: how many sources it merges.
    """

    __slots__ = ("size_bytes", "sources")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.sources = 0

    def has(self, block_bytes: int) -> bool:
        """Return whether each source may hold a block of this size."""
        return block_bytes <= LARGE_VALUE_BYTES or self._needed_bytes(block_bytes) <= self.size_bytes

    def require(self, block_bytes: int) -> None:
        """Check that each source may hold a block of this size.

        Raises:
            ScanRoomExceeded: they may not.
        """
        if not self.has(block_bytes):
            raise ScanRoomExceeded(self._needed_bytes(block_bytes))

    def _needed_bytes(self, block_bytes: int) -> int:
        return (self.sources + _COPIES_OF_OUTPUT) * block_bytes
