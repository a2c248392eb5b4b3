"""A FlatBuffers reader that trusts nothing (docs/format.md 3.1).

Every offset, length and count is checked against the buffer before it is followed, and what a caller can pull out of
one buffer is limited to a small multiple of its size, so that a few bytes that point at each other cannot fill the
memory.  The schemas nest to a fixed depth, so depth needs no counter.
"""

from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import TypeVar
from uuid import UUID

from shale.errors import CorruptionError
from shale.format.buffer import Buffer
from shale.types import Ulid

_U8 = Struct("<B")
_I8 = Struct("<b")
_U16 = Struct("<H")
_U32 = Struct("<I")
_I32 = Struct("<i")
_U64 = Struct("<Q")
_I64 = Struct("<q")

_ULID = Struct("<QQ")
_SLOTS_MAX = 24
"""More than any table of the schema has; shorter vtables are filled up with absent fields."""
_KindT = TypeVar("_KindT", bound=IntEnum)
_VISITS_MAX = 4
"""How often the bytes of a buffer may be read on average: honest writers share vtables only, so once is normal."""


class FlatReader:
    """One buffer.  ``path`` and ``base`` (the buffer's place in the object) are for error messages."""

    __slots__ = ("_budget", "_size", "_vtables", "base", "data", "path")

    def __init__(self, data: Buffer, *, path: str | None, base: int = 0) -> None:
        self.data = data
        self.path = path
        self.base = base
        self._size = len(self.data)
        self._vtables: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._budget = _VISITS_MAX * self._size + 64

    def root(self) -> "FlatTable":
        """The root table."""
        return self.table_at(self.follow(0))

    def corrupt(self, message: str, position: int) -> CorruptionError:
        """An error that names the object and the byte."""
        return CorruptionError(message, path=self.path, offset=self.base + position)

    def follow(self, position: int) -> int:
        """The target of the u32 offset at ``position``."""
        try:
            target = position + int(_U32.unpack_from(self.data, position)[0])
        except struct_error:
            raise self.corrupt("an offset lies outside the buffer", position) from None
        if target < position + 4 or target + 4 > self._size:
            raise self.corrupt(f"offset {target - position} leads out of the buffer", position)
        return target

    def spend(self, size: int, position: int) -> None:
        """Count bytes that are handed out."""
        self._budget -= size
        if self._budget < 0:
            raise self._too_often(position)

    def table_at(self, position: int) -> "FlatTable":
        """The table at a position that ``follow`` returned."""
        vtable = position - int(_I32.unpack_from(self.data, position)[0])
        size, fields = self._vtables.get(vtable) or self._read_vtable(vtable, position)
        if position + size > self._size:
            raise self.corrupt(f"a table of {size} bytes exceeds the buffer", position)
        self._budget -= size
        if self._budget < 0:
            raise self._too_often(position)
        return FlatTable(self, position, fields)

    def _read_vtable(self, vtable: int, table: int) -> tuple[int, tuple[int, ...]]:
        if vtable < 0 or vtable + 4 > self._size:
            raise self.corrupt("a table's vtable lies outside the buffer", table)
        length: int = _U16.unpack_from(self.data, vtable)[0]
        size: int = _U16.unpack_from(self.data, vtable + 2)[0]
        if length < 4 or length % 2 or size < 4:
            raise self.corrupt(f"vtable of {length} bytes for a table of {size}", vtable)
        if vtable + length > self._size:
            raise self.corrupt(f"a vtable of {length} bytes exceeds the buffer", vtable)
        count = min((length - 4) // 2, _SLOTS_MAX)
        fields = Struct(f"<{count}H").unpack_from(self.data, vtable + 4)
        if any(field != 0 and (field < 4 or field >= size) for field in fields):
            raise self.corrupt("a vtable places a field outside its table", vtable)
        fields += (0,) * (_SLOTS_MAX - count)
        self._vtables[vtable] = (size, fields)
        return size, fields

    def _too_often(self, position: int) -> CorruptionError:
        return self.corrupt("parts of the buffer are referenced over and over", position)


class FlatTable:
    """One table; fields are read by slot.  Absent scalars read as 0, absent references as ``None``."""

    __slots__ = ("_fields", "_reader", "position")

    def __init__(self, reader: FlatReader, position: int, fields: tuple[int, ...]) -> None:
        self._reader = reader
        self._fields = fields
        self.position = position

    def corrupt(self, message: str) -> CorruptionError:
        """An error at this table."""
        return self._reader.corrupt(message, self.position)

    def u8(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _U8)

    def i8(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _I8)

    def u16(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _U16)

    def u32(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _U32)

    def u64(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _U64)

    def i64(self, slot: int) -> int:
        """A scalar."""
        return self._scalar(slot, _I64)

    def nullable_u16(self, slot: int) -> int | None:
        """A scalar whose absence means "not said"."""
        return self._scalar(slot, _U16) if self.has(slot) else None

    def has(self, slot: int) -> bool:
        """Whether the field is present."""
        return self._place(slot) is not None

    def kind(self, slot: int, kinds: type[_KindT], what: str) -> _KindT:
        """A scalar of one byte that must be a member of ``kinds``; ``what`` names it in the error."""
        value = self._scalar(slot, _I8)
        try:
            return kinds(value)
        except ValueError as error:
            raise self.corrupt(f"unknown {what} {value}") from error

    def blob(self, slot: int) -> bytes | None:
        """A vector of bytes, copied."""
        vector = self._vector(slot, 1)
        if vector is None:
            return None
        start, count = vector
        return bytes(self._reader.data[start : start + count])

    def string(self, slot: int) -> str | None:
        """A string.  UTF-8 is checked, as SlateDB does."""
        raw = self.blob(slot)
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"a string is not UTF-8: {raw[:32]!r}") from error

    def vector(self, slot: int, width: int, what: str) -> tuple[int, int]:
        """Position and count of a vector that has to be there, for readers of whole columns."""
        vector = self._vector(slot, width)
        if vector is None:
            raise self.corrupt(f"required field {what} is absent")
        return vector

    def u32s(self, slot: int) -> tuple[int, ...] | None:
        """A vector of u32."""
        vector = self._vector(slot, 4)
        if vector is None:
            return None
        start, count = vector
        return Struct(f"<{count}I").unpack_from(self._reader.data, start)

    def table(self, slot: int) -> "FlatTable | None":
        """A table."""
        place = self._place(slot)
        if place is None:
            return None
        reader = self._reader
        return reader.table_at(reader.follow(place))

    def required_table(self, slot: int, what: str) -> "FlatTable":
        """A table that has to be there; ``what`` names it in the error."""
        table = self.table(slot)
        if table is None:
            raise self.corrupt(f"required field {what} is absent")
        return table

    def tables(self, slot: int) -> "list[FlatTable] | None":
        """A vector of tables."""
        vector = self._vector(slot, 4)
        if vector is None:
            return None
        start, count = vector
        reader = self._reader
        return [reader.table_at(reader.follow(at)) for at in range(start, start + 4 * count, 4)]

    def required_tables(self, slot: int, what: str) -> "list[FlatTable]":
        """A vector of tables that has to be there, though it may be empty."""
        tables = self.tables(slot)
        if tables is None:
            raise self.corrupt(f"required field {what} is absent")
        return tables

    def ulid(self, slot: int) -> Ulid | None:
        """A ``Ulid`` table."""
        table = self.table(slot)
        return None if table is None else table.as_ulid()

    def required_ulid(self, slot: int, what: str) -> Ulid:
        """A ``Ulid`` table that has to be there."""
        return self.required_table(slot, what).as_ulid()

    def ulids(self, slot: int) -> tuple[Ulid, ...] | None:
        """A vector of ``Ulid`` tables."""
        tables = self.tables(slot)
        return None if tables is None else tuple(table.as_ulid() for table in tables)

    def uuid(self, slot: int) -> UUID | None:
        """A ``Uuid`` table."""
        table = self.table(slot)
        return None if table is None else UUID(int=table.as_ulid())

    def required_uuid(self, slot: int, what: str) -> UUID:
        """A ``Uuid`` table that has to be there."""
        return UUID(int=self.required_table(slot, what).as_ulid())

    def as_ulid(self) -> Ulid:
        """This table's two slots as one number of 128 bits."""
        high, low = self._fields[:2]
        if high and low == high + 8:  # as every writer that we know places them
            try:
                parts = _ULID.unpack_from(self._reader.data, self.position + high)
            except struct_error:
                raise self.corrupt("an id exceeds the buffer") from None
            return Ulid(parts[0] << 64 | parts[1])
        return Ulid(self.u64(0) << 64 | self.u64(1))

    def _place(self, slot: int) -> int | None:
        field = self._fields[slot]
        return self.position + field if field else None

    def _scalar(self, slot: int, code: Struct) -> int:
        field = self._fields[slot]
        if not field:
            return 0
        try:
            value: int = code.unpack_from(self._reader.data, self.position + field)[0]
        except struct_error:
            raise self.corrupt(f"the field in slot {slot} exceeds the buffer") from None
        return value

    def _vector(self, slot: int, width: int) -> tuple[int, int] | None:
        place = self._place(slot)
        if place is None:
            return None
        reader = self._reader
        start = reader.follow(place)
        count: int = _U32.unpack_from(reader.data, start)[0]
        if count * width > len(reader.data) - start - 4:
            raise reader.corrupt(f"a vector claims {count} elements of {width} bytes", start)
        reader.spend(count * width, start)
        return start + 4, count
