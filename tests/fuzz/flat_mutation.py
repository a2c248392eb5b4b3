"""Changes of FlatBuffers by their fields: scalars, offsets, lengths of vectors, and vtables.

The places are found with the layouts of the schema; a damaged buffer has those that can still be reached.
"""

import random
from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from shale._generated.layouts import TABLES, UNIONS
from tests.fuzz.mutation import NUMBERS, mutate_bytes, put

_U16, _U32, _I32 = Struct("<H"), Struct("<I"), Struct("<i")
_WIDTHS = {"byte": 1, "ubyte": 1, "bool": 1, "ushort": 2, "uint": 4, "ulong": 8, "long": 8}
_PLACES_MAX = 20_000


class Place(NamedTuple):
    """Bytes ``[at, at + width)`` of one meaning."""

    at: int
    width: int
    is_offset: bool


class _Walk:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.places: list[Place] = []
        self.targets: list[int] = []
        self._seen: set[int] = set()

    def table(self, at: int, name: str) -> None:
        if at in self._seen or len(self.places) > _PLACES_MAX:
            return
        self._seen.add(at)
        self.targets.append(at)
        vtable = at - _I32.unpack_from(self.data, at)[0]
        self.places.append(Place(at, 4, is_offset=False))
        if vtable < 0:
            return
        length = _U16.unpack_from(self.data, vtable)[0]
        self.places += [Place(vtable, 2, is_offset=False), Place(vtable + 2, 2, is_offset=False)]
        for slot, (_, kind, _) in enumerate(TABLES[name]):
            place = vtable + 4 + 2 * slot
            if place + 2 > vtable + length:
                break
            self.places.append(Place(place, 2, is_offset=False))
            offset = _U16.unpack_from(self.data, place)[0]
            if offset:
                self._field(at, at + offset, kind, slot, name)

    def _field(self, table: int, at: int, kind: str, slot: int, name: str) -> None:
        if kind in _WIDTHS:
            self.places.append(Place(at, _WIDTHS[kind], is_offset=False))
            return
        self.places.append(Place(at, 4, is_offset=True))
        target = at + _U32.unpack_from(self.data, at)[0]
        if kind in TABLES:
            self.table(target, kind)
        elif kind in UNIONS:
            vtable = table - _I32.unpack_from(self.data, table)[0]
            type_at = _U16.unpack_from(self.data, vtable + 4 + 2 * (slot - 1))[0]
            members = [each for each in UNIONS[kind] if each in TABLES]
            number = self.data[table + type_at] if type_at else 0
            if 0 < number <= len(members):
                self.table(target, members[number - 1])
        else:
            self._vector(target, kind.strip("[]"))

    def _vector(self, at: int, element: str) -> None:
        self.targets.append(at)
        count = _U32.unpack_from(self.data, at)[0]
        self.places.append(Place(at, 4, is_offset=False))
        if element in _WIDTHS or element == "string":
            width = _WIDTHS.get(element, 1)
            self.places += [Place(at + 4 + width * each, width, is_offset=False) for each in range(min(count, 8))]
            return
        for each in range(min(count, 1000)):
            place = at + 4 + 4 * each
            self.places.append(Place(place, 4, is_offset=True))
            self.table(place + _U32.unpack_from(self.data, place)[0], element)


def places_of(data: bytes, root: str) -> tuple[list[Place], list[int]]:
    """Return the fields of a FlatBuffer, and what offsets may refer to."""
    walk = _Walk(data)
    try:
        walk.places.append(Place(0, 4, is_offset=True))
        walk.table(_U32.unpack_from(data, 0)[0], root)
    except (struct_error, IndexError):
        pass  # the rest cannot be reached
    return walk.places, walk.targets


def mutate_flat(rng: random.Random, data: bytes, root: str) -> bytes:
    """Return a FlatBuffer with one field changed."""
    places, targets = places_of(data, root)
    if not places:
        return mutate_bytes(rng, data)
    at, width, is_offset = rng.choice(places)
    if is_offset and targets and rng.random() < 0.6:
        value = rng.choice(targets) - at
    elif rng.random() < 0.3:
        other = rng.choice(places)
        value = int.from_bytes(data[other.at : other.at + width], "little")
    elif rng.random() < 0.4:
        value = int.from_bytes(data[at : at + width], "little") + rng.choice((-1, 1, 4, -4, 256))
    else:
        value = rng.choice(NUMBERS)
    return put(data, at, (value & (1 << 8 * width) - 1).to_bytes(width, "little"))


def flat_mutation(root: str, *, prefix: int = 0) -> Callable[[random.Random, bytes], bytes]:
    """Return a change of a FlatBuffer that follows ``prefix`` other bytes."""

    def change(rng: random.Random, data: bytes) -> bytes:
        return data[:prefix] + mutate_flat(rng, data[prefix:], root)

    return change
