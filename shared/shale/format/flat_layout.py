"""Layouts of FlatBuffers tables: which slots a table has and how wide each is (docs/format.md 3).

Only what both directions need is here; ``flat_reader`` and ``flat_writer`` do the work.
"""

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """How one slot is stored: its width in bytes and its code in ``struct``."""

    U8 = (1, "B")
    I8 = (1, "b")
    BOOL = (1, "B ")
    U16 = (2, "H")
    NULLABLE_U16 = (2, "H ")
    U32 = (4, "I")
    U64 = (8, "Q")
    I64 = (8, "q")
    OFFSET = (4, "I ")
    """A reference to a vector, a string or a table; for a union, to its value."""

    @property
    def width(self) -> int:
        """Bytes, which is also the alignment."""
        return self.value[0]

    @property
    def code(self) -> str:
        """The ``struct`` format character."""
        return self.value[1].strip()


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A table of the schema: its fields in slot order.  Every scalar's default is 0."""

    name: str
    fields: tuple[tuple[str, Kind], ...]
    slots: tuple[Kind, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", tuple(kind for _, kind in self.fields))
