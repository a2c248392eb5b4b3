"""Our FlatBuffers writer gives the bytes of the reference builder."""

from typing import Any

import flatbuffers
from hypothesis import given
from hypothesis import strategies as st

from shale.format.flat_layout import Kind, Layout
from shale.format.flat_reader import FlatReader
from shale.format.flat_writer import FlatWriter

SCALARS = [kind for kind in Kind if kind is not Kind.OFFSET]
RANGES = {
    Kind.U8: (0, 2**8 - 1),
    Kind.I8: (-(2**7), 2**7 - 1),
    Kind.BOOL: (0, 1),
    Kind.U16: (0, 2**16 - 1),
    Kind.NULLABLE_U16: (0, 2**16 - 1),
    Kind.U32: (0, 2**32 - 1),
    Kind.U64: (0, 2**64 - 1),
    Kind.I64: (-(2**63), 2**63 - 1),
}
PREPEND = {
    Kind.U8: "PrependUint8",
    Kind.I8: "PrependInt8",
    Kind.BOOL: "PrependUint8",
    Kind.U16: "PrependUint16",
    Kind.NULLABLE_U16: "PrependUint16",
    Kind.U32: "PrependUint32",
    Kind.U64: "PrependUint64",
    Kind.I64: "PrependInt64",
}


@st.composite
def documents(draw: st.DrawFn) -> list[tuple[Layout, list[Any]]]:
    """Tables with scalars, byte vectors, strings and references to earlier tables."""
    kinds = draw(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=6))
    layout = Layout("T", tuple((f"f{slot}", kind) for slot, kind in enumerate(kinds)))
    tables = []
    for number in range(draw(st.integers(1, 4))):
        values: list[Any] = []
        for kind in kinds:
            if kind is Kind.OFFSET:
                choices = [st.none(), st.binary(max_size=9), st.text("aß€", max_size=5)]
                if number:
                    choices.append(st.lists(st.integers(0, number - 1), max_size=3))
                values.append(draw(st.one_of(choices)))
            else:
                values.append(draw(st.one_of(st.just(0), st.integers(*RANGES[kind]))))
        tables.append((layout, values))
    return tables


def written_by_us(document: list[tuple[Layout, list[Any]]]) -> bytes:
    writer = FlatWriter()
    tables: list[int] = []
    for layout, values in document:
        stored = []
        for value in values:
            match value:
                case bytes():
                    stored.append(writer.blob(value))
                case str():
                    stored.append(writer.string(value))
                case list():
                    stored.append(writer.references([tables[index] for index in value]))
                case _:
                    stored.append(value)
        tables.append(writer.table(layout, stored))
    return writer.finish(tables[-1])


def written_by_the_reference(document: list[tuple[Layout, list[Any]]]) -> bytes:
    builder = flatbuffers.Builder(0)
    tables: list[int] = []
    for layout, values in document:
        stored = []
        for value in values:
            match value:
                case bytes():
                    stored.append(builder.CreateByteVector(value))
                case str():
                    stored.append(builder.CreateString(value))
                case list():
                    builder.StartVector(4, len(value), 4)
                    for index in reversed(value):
                        builder.PrependUOffsetTRelative(tables[index])
                    stored.append(builder.EndVector())
                case _:
                    stored.append(value)
        builder.StartObject(len(stored))
        for slot in sorted(range(len(stored)), key=lambda slot: (-layout.slots[slot].width, -slot)):
            kind, value = layout.slots[slot], stored[slot]
            if kind is Kind.OFFSET:
                builder.PrependUOffsetTRelativeSlot(slot, value or 0, 0)
            elif value or kind is Kind.NULLABLE_U16:
                getattr(builder, PREPEND[kind])(value)
                builder.Slot(slot)
        tables.append(builder.EndObject())
    builder.Finish(tables[-1])
    return bytes(builder.Output())


@given(documents())
def test_same_bytes_as_the_reference_builder(document: list[tuple[Layout, list[Any]]]) -> None:
    assert written_by_us(document) == written_by_the_reference(document)


@given(documents())
def test_what_was_written_is_read(document: list[tuple[Layout, list[Any]]]) -> None:
    layout, values = document[-1]
    root = FlatReader(written_by_us(document), path=None).root()
    for slot, (kind, value) in enumerate(zip(layout.slots, values, strict=True)):
        match value:
            case bytes():
                assert root.blob(slot) == value
            case str():
                assert root.string(slot) == value
            case list():
                assert len(root.tables(slot) or []) == len(value)
            case None:
                assert not root.has(slot)
            case _:
                read = {Kind.I8: root.i8, Kind.I64: root.i64, Kind.U16: root.u16, Kind.NULLABLE_U16: root.nullable_u16}
                width = {1: root.u8, 2: root.u16, 4: root.u32, 8: root.u64}
                assert read.get(kind, width[kind.width])(slot) == value
