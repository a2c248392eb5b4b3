"""A FlatBuffers writer whose bytes are those of SlateDB's (docs/format.md 3.2).

The buffer grows downwards, as FlatBuffers builders do: what is made first ends up last, and every position is counted
from the end.  Inside a table fields are placed by descending width and, within one width, by descending slot; equal
vtables are shared.  The layout of a table depends only on which fields are present and on the alignment it starts
at, so it is computed once per such shape and a table then costs one ``struct`` call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from shale.format.buffer import Buffer
from shale.format.flat_layout import Kind, Layout
from shale.format.tables import ULID
from shale.types import Ulid

_SOFFSET_WIDTH = 4
_MASK64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a table with certain fields is packed.  ``order`` holds slots by ascending address."""

    pack: Struct
    order: tuple[int, ...]
    from_start: tuple[int, ...]
    """Per slot of ``order``: its distance from the table's start position for references, 0 for scalars."""
    size: int
    vtable: bytes
    alignment: int


_SHAPES: dict[tuple[Layout, int, int], _Shape] = {}


class FlatWriter:
    """Builds one buffer: children first, then their tables, then ``finish``."""

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []
        self._size = 0
        self._alignment = 4
        self._vtables: dict[bytes, int] = {}

    def blob(self, data: bytes | None) -> int:
        """A vector of bytes; 0 for ``None``."""
        if data is None:
            return 0
        self._push(Struct("<I").pack(len(data)) + data + bytes(-(self._size + len(data)) & 3))
        return self._size

    def string(self, text: str | None) -> int:
        """A string with its closing zero byte; 0 for ``None``."""
        if text is None:
            return 0
        data = text.encode()
        self._push(Struct("<I").pack(len(data)) + data + bytes(1 + (-(self._size + len(data) + 1) & 3)))
        return self._size

    def u32s(self, values: Sequence[int]) -> int:
        """A vector of u32."""
        self._push(bytes(-self._size & 3))
        self._push(Struct(f"<I{len(values)}I").pack(len(values), *values))
        return self._size

    def references(self, targets: Sequence[int]) -> int:
        """A vector of tables that were made before."""
        self._push(bytes(-self._size & 3))
        first = self._size + 4 * len(targets)
        relative = [first - 4 * index - target for index, target in enumerate(targets)]
        self._push(Struct(f"<I{len(targets)}I").pack(len(targets), *relative))
        return self._size

    def reference_column(self, targets: NDArray[np.int64]) -> int:
        """As ``references``, from an array."""
        count = len(targets)
        self._push(bytes(-self._size & 3))
        relative = self._size + 4 * count - 4 * np.arange(count) - targets
        self._push(Struct("<I").pack(count) + relative.astype("<u4").tobytes())
        return self._size

    @property
    def size(self) -> int:
        """Bytes so far: the position, counted from the end, that the next thing is put in front of."""
        return self._size

    @property
    def top(self) -> bytes:
        """What was written last: the table, when its vtable was there already."""
        return bytes(self._chunks[-1])

    def append(self, chunk: Buffer, *, alignment: int) -> None:
        """Put bytes in front that the caller has laid out; ``alignment`` is the largest that they rely on."""
        self._alignment = max(self._alignment, alignment)
        self._push(chunk)

    def ulid(self, value: Ulid | None) -> int:
        """A ``Ulid`` table; 0 for ``None``."""
        return 0 if value is None else self.table(ULID, (value >> 64, value & _MASK64))

    def uuid(self, value: UUID | None) -> int:
        """A ``Uuid`` table; 0 for ``None``."""
        return 0 if value is None else self.table(ULID, (value.int >> 64, value.int & _MASK64))

    def ulids(self, values: Sequence[Ulid]) -> int:
        """A vector of ``Ulid`` tables."""
        return self.references([self.ulid(value) for value in values])

    def table(self, layout: Layout, values: Sequence[int | None]) -> int:
        """A table.  ``values[n]`` belongs to slot n: a scalar, or what a method returned for a reference.

        0 and ``None`` are left out, except a nullable scalar of 0.
        """
        present = 0
        for slot, value in enumerate(values):
            if value or (value is not None and layout.slots[slot] is Kind.NULLABLE_U16):
                present |= 1 << slot
        key = (layout, present, self._size & 7)
        shape = _SHAPES.get(key)
        if shape is None:
            shape = _SHAPES[key] = _plan_shape(layout, present, self._size & 7)
        fields = [
            (self._size + distance - (values[slot] or 0)) if distance else (values[slot] or 0)
            for slot, distance in zip(shape.order, shape.from_start, strict=True)
        ]
        self._alignment = max(self._alignment, shape.alignment)
        start = self._size + shape.size
        vtable = self._vtables.get(shape.vtable)
        if vtable is not None:
            self._push(shape.pack.pack(vtable - start, *fields))
            return start
        self._push(shape.pack.pack(len(shape.vtable), *fields))
        self._push(shape.vtable)
        self._vtables[shape.vtable] = self._size
        return start

    def finish(self, root: int) -> bytes:
        """The whole buffer."""
        self._push(bytes(-(self._size + 4) & (self._alignment - 1)))
        self._push(Struct("<I").pack(self._size + 4 - root))
        return b"".join(reversed(self._chunks))

    def _push(self, chunk: Buffer) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)


def _plan_shape(layout: Layout, present: int, phase: int) -> _Shape:
    """Place the fields of a table that starts when ``phase`` bytes (mod 8) are below it."""
    slots = [slot for slot in range(len(layout.slots)) if present >> slot & 1]
    slots.sort(key=lambda slot: (-layout.slots[slot].width, -slot))
    codes: list[str] = []
    ends: dict[int, int] = {}
    at = phase
    for slot in slots:
        kind = layout.slots[slot]
        pad = -at & (kind.width - 1)
        at += pad + kind.width
        codes += [f"{pad}x", kind.code]
        ends[slot] = at - phase
    pad = -at & (_SOFFSET_WIDTH - 1)
    at += pad + _SOFFSET_WIDTH
    codes += [f"{pad}x", "i"]
    size = at - phase
    count = max(slots, default=-1) + 1
    places = [size - ends[slot] if slot in ends else 0 for slot in range(count)]
    order = tuple(reversed(slots))
    return _Shape(
        pack=Struct("<" + "".join(reversed(codes))),
        order=order,
        from_start=tuple(ends[slot] if layout.slots[slot] is Kind.OFFSET else 0 for slot in order),
        size=size,
        vtable=Struct(f"<{count + 2}H").pack(4 + 2 * count, size, *places),
        alignment=max([4, *(layout.slots[slot].width for slot in slots)]),
    )
