"""Verifies a FlatBuffer against its schema before the generated accessors read it (docs/reference/format.md 3.1).

Python's FlatBuffers runtime follows every offset it reads.  The verifier walks the buffer once, by the layouts
generated from ``schemas/``, and checks every offset, length and count; afterwards the accessors cannot leave the
buffer.  The number of visited bytes is limited to a small multiple of the buffer's size, so that a few bytes that
refer to each other cannot exhaust the CPU or the memory of a reader.  The schemas nest to a fixed depth, so the
recursion needs no counter.
"""

from collections.abc import Collection
from enum import IntEnum
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from shale._generated.layouts import TABLES, UNIONS
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError

_U16 = Struct("<H")
_U32 = Struct("<I")
_I32 = Struct("<i")
_VISITS_MAX = 4
"""How often the bytes of a buffer may be visited on average.  Writers share only vtables, so once is normal."""
_WIDTHS = {"byte": 1, "ubyte": 1, "bool": 1, "ushort": 2, "uint": 4, "ulong": 8, "long": 8}
_OFFSET_WIDTH = 4


class _Visit(IntEnum):
    """The target of an offset in a table."""

    SCALARS = 0
    STRING = 1
    TABLE = 2
    TABLES = 3
    UNION = 4


class _Field(NamedTuple):
    """A field that holds an offset.  ``target`` is the width of a scalar, or the tables that it refers to."""

    name: str
    slot: int
    visit: _Visit
    width: int
    tables: tuple["_Layout", ...]


class _Layout:
    """A table as the verifier walks it."""

    __slots__ = ("fields", "name", "required", "widths")

    def __init__(self, name: str) -> None:
        self.name = name
        self.widths: tuple[int, ...] = ()
        self.required: tuple[tuple[int, str], ...] = ()
        self.fields: tuple[_Field, ...] = ()


class _Reference(NamedTuple):
    """A field of tables with one vtable: ``at`` is its offset in the table, ``type_at`` that of a union's type."""

    at: int
    visit: _Visit
    width: int
    tables: tuple[_Layout, ...]
    type_at: int


class Verifier:
    """Checks one buffer; ``path`` and ``base``, the buffer's offset in the object, are for errors."""

    __slots__ = ("_base", "_budget", "_left_out", "_path", "_size", "_vtables", "data")

    def __init__(self, data: BytesLike, *, path: str | None, base: int = 0) -> None:
        self.data = data
        self._path = path
        self._base = base
        self._size = len(data)
        self._budget = _VISITS_MAX * self._size + 64
        self._left_out: Collection[str] = ()
        self._vtables: dict[tuple[int, _Layout], tuple[int, tuple[_Reference, ...]]] = {}

    def verify_root(self, table: str, *, left_out: Collection[str] = ()) -> int:
        """Verify the buffer as a root table of the schema.

        Args:
            table: the schema's name of the root table.
            left_out: of vectors of these tables only the vectors themselves are verified: readers of whole columns
                check the elements.

        Returns:
            The position of the root table.

        Raises:
            CorruptionError: with path and offset.
        """
        self._left_out = left_out
        position = self.follow(0)
        self._verify_table(position, _layout(table))
        return position

    def verify_table(self, position: int, table: str) -> None:
        """Verify a table that was left out, whose first four bytes are in the buffer."""
        self._verify_table(position, _layout(table))

    def corrupt(self, message: str, position: int) -> CorruptionError:
        """Return an error that names the object and the byte at ``position`` of the buffer."""
        return CorruptionError(message, path=self._path, offset=self._base + position)

    def follow(self, position: int) -> int:
        """Return the target of the u32 offset at ``position``, at which four bytes can be read."""
        try:
            target: int = position + _U32.unpack_from(self.data, position)[0]
        except struct_error:
            raise self.corrupt("an offset lies outside the buffer", position) from None
        if target < position + 4 or target + 4 > self._size:
            raise self.corrupt(f"offset {target - position} leads out of the buffer", position)
        return target

    def spend(self, size: int, position: int) -> None:
        """Count ``size`` bytes as visited."""
        self._budget -= size
        if self._budget < 0:
            raise self.corrupt("parts of the buffer are referenced over and over", position)

    def _verify_table(self, position: int, layout: _Layout) -> None:
        vtable = position - int(_I32.unpack_from(self.data, position)[0])
        size, references = self._vtables.get((vtable, layout)) or self._read_vtable(vtable, position, layout)
        if position + size > self._size:
            raise self.corrupt(f"a table of {size} bytes exceeds the buffer", position)
        self._budget -= size
        if self._budget < 0:
            self.spend(0, position)
        for at, visit, width, tables, type_at in references:
            place = position + at
            if visit is _Visit.TABLE:
                self._verify_table(self.follow(place), tables[0])
            elif visit is _Visit.SCALARS:
                self._verify_vector(place, width)
            elif visit is _Visit.TABLES:
                start, count = self._verify_vector(place, _OFFSET_WIDTH)
                if tables[0].name not in self._left_out:
                    for element in range(start, start + _OFFSET_WIDTH * count, _OFFSET_WIDTH):
                        self._verify_table(self.follow(element), tables[0])
            elif visit is _Visit.STRING:
                self._verify_string(place)
            else:
                member = self.data[position + type_at] if type_at else 0
                # A reader that uses the field rejects an unknown type; a reader that does not use it may ignore it.
                if 0 < member <= len(tables):
                    self._verify_table(self.follow(place), tables[member - 1])

    def _verify_vector(self, place: int, width: int) -> tuple[int, int]:
        """Return where the elements of the vector that ``place`` refers to begin, and their number."""
        start = self.follow(place)
        count: int = _U32.unpack_from(self.data, start)[0]
        if count * width > self._size - start - 4:
            raise self.corrupt(f"a vector claims {count} elements of {width} bytes", start)
        self.spend(count * width, start)
        return start + 4, count

    def _verify_string(self, place: int) -> None:
        start, size = self._verify_vector(place, 1)
        raw = bytes(self.data[start : start + size])
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"a string is not UTF-8: {raw[:32]!r}", start) from error

    def _read_vtable(self, vtable: int, table: int, layout: _Layout) -> tuple[int, tuple[_Reference, ...]]:
        """Check a vtable that a table of this layout uses; the result is cached, because most tables share theirs."""
        if vtable < 0 or vtable + 4 > self._size:
            raise self.corrupt("a table's vtable lies outside the buffer", table)
        length: int = _U16.unpack_from(self.data, vtable)[0]
        size: int = _U16.unpack_from(self.data, vtable + 2)[0]
        if length < 4 or length % 2 or size < 4:
            raise self.corrupt(f"vtable of {length} bytes for a table of {size}", vtable)
        if vtable + length > self._size:
            raise self.corrupt(f"a vtable of {length} bytes exceeds the buffer", vtable)
        # Slots beyond the layout belong to a later release; no accessor reads them.
        count = min((length - 4) // 2, len(layout.widths))
        offsets = Struct(f"<{count}H").unpack_from(self.data, vtable + 4)
        for offset, width in zip(offsets, layout.widths, strict=False):
            if offset and (offset < 4 or offset + width > size):
                raise self.corrupt("a vtable places a field outside its table", vtable)
        for slot, name in layout.required:
            if slot >= count or not offsets[slot]:
                raise self.corrupt(f"required field {layout.name}.{name} is absent", table)
        references = tuple(
            _Reference(offsets[slot], visit, width, tables, offsets[slot - 1] if visit is _Visit.UNION else 0)
            for _, slot, visit, width, tables in layout.fields
            if slot < count and offsets[slot]
        )
        checked = self._vtables[vtable, layout] = size, references
        return checked


@cache
def _layout(name: str) -> _Layout:
    """Return the layout of a table and, through its fields, of all tables that it refers to."""
    layout = _Layout(name)
    widths, required, fields = [], [], []
    for slot, (field, type_, is_required) in enumerate(TABLES[name]):
        widths.append(_WIDTHS.get(type_, _OFFSET_WIDTH))
        if is_required:
            required.append((slot, field))
        if type_ not in _WIDTHS:
            fields.append(_Field(field, slot, *_visit_of(type_)))
    layout.widths, layout.required, layout.fields = tuple(widths), tuple(required), tuple(fields)
    return layout


def _visit_of(type_: str) -> tuple[_Visit, int, tuple[_Layout, ...]]:
    element = type_.strip("[]")
    if type_ == "string":
        return _Visit.STRING, 1, ()
    if type_ in UNIONS:
        return _Visit.UNION, 0, tuple(map(_layout, UNIONS[type_]))
    if element in TABLES:
        return _Visit.TABLE if element == type_ else _Visit.TABLES, _OFFSET_WIDTH, (_layout(element),)
    return _Visit.SCALARS, _WIDTHS[element], ()
