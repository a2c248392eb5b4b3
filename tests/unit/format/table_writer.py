"""Writes any FlatBuffers table of the schema, also with values that no encoder of the library would write."""

from collections.abc import Sequence

from flatbuffers import Builder

from shale._generated.layouts import TABLES
from shale.format.flat.builder import finish, write_bytes, write_offsets, write_string, write_u32s, write_ulid
from shale.types import Ulid

SCALARS = {
    "byte": (1, Builder.PrependInt8Slot),
    "ubyte": (1, Builder.PrependUint8Slot),
    "bool": (1, Builder.PrependUint8Slot),
    "ushort": (2, Builder.PrependUint16Slot),
    "uint": (4, Builder.PrependUint32Slot),
    "ulong": (8, Builder.PrependUint64Slot),
    "long": (8, Builder.PrependInt64Slot),
}
"""The width of each scalar type, and the call that writes it; all else is an offset of 4 bytes."""


class TableWriter:
    """One buffer: children first, then their tables, then ``finish``."""

    def __init__(self) -> None:
        self.builder = Builder(0)

    def blob(self, data: bytes | None) -> int:
        return write_bytes(self.builder, data)

    def string(self, text: str | None) -> int:
        return write_string(self.builder, text)

    def u32s(self, values: Sequence[int]) -> int:
        return write_u32s(self.builder, values)

    def references(self, tables: Sequence[int]) -> int:
        return write_offsets(self.builder, tables)

    def ulid(self, value: Ulid) -> int:
        return write_ulid(self.builder, value)

    def ulids(self, values: Sequence[Ulid]) -> int:
        return self.references([self.ulid(value) for value in values])

    def table(self, name: str, values: Sequence[int | None]) -> int:
        """Write a table of the schema; ``values[n]`` belongs to slot n, 0 and ``None`` are left out."""
        fields = TABLES[name]
        widths = [SCALARS[type_][0] if type_ in SCALARS else 4 for _, type_, _ in fields]
        self.builder.StartObject(len(fields))
        for slot in sorted(range(len(values)), key=lambda slot: (-widths[slot], -slot)):
            type_ = fields[slot][1]
            if type_ in SCALARS:
                default = None if fields[slot][0] == "format_version" else 0
                if values[slot] is not None:
                    SCALARS[type_][1](self.builder, slot, values[slot], default)
            else:
                self.builder.PrependUOffsetTRelativeSlot(slot, values[slot] or 0, 0)
        return self.builder.EndObject()

    def finish(self, root: int) -> bytes:
        return finish(self.builder, root)
