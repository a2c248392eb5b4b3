"""The table class of the generated accessors.  Written by hand: the one module here that ``make gen-schemas`` leaves."""

from struct import Struct
from typing import Any

from flatbuffers.table import Table

_read_i32 = Struct("<i").unpack_from
_read_u16 = Struct("<H").unpack_from


class VerifiedTable(Table):  # type: ignore[misc]  # flatbuffers has no types
    """A table in a buffer that was verified (``shale.format.flat.verifier``).

    The base class checks the type and the range of every offset that it reads, which takes most of its time.
    """

    __slots__ = ()

    def Offset(self, vtableOffset: int) -> int:  # noqa: N802, N803 - flatbuffers' names
        """Return where a field lies in the table; 0 if it is absent."""
        data = self.Bytes
        vtable: int = self.Pos - _read_i32(data, self.Pos)[0]
        if vtableOffset >= _read_u16(data, vtable)[0]:
            return 0
        offset: int = _read_u16(data, vtable + vtableOffset)[0]
        return offset

    def Get(self, flags: Any, off: int) -> Any:  # noqa: N802
        """Return the scalar at a position of the buffer."""
        return flags.packer_type.unpack_from(self.Bytes, off)[0]
