"""``schemas/*.fbs`` and the layouts in the code say the same."""

import re
from pathlib import Path

from shale.format import tables
from shale.format.flat_layout import Kind, Layout

SCHEMAS = sorted((Path(__file__).parents[3] / "schemas").glob("*.fbs"))
TEXT = re.sub(r"//[^\n]*", "", "\n".join(path.read_text() for path in SCHEMAS))
SCALARS = {
    "ubyte": Kind.U8,
    "byte": Kind.I8,
    "bool": Kind.BOOL,
    "ushort": Kind.U16,
    "uint": Kind.U32,
    "ulong": Kind.U64,
    "long": Kind.I64,
}
ENUMS = {name: SCALARS[kind] for name, kind in re.findall(r"enum (\w+): (\w+)", TEXT)}
UNIONS = set(re.findall(r"union (\w+)", TEXT))


def fields_of(body: str) -> tuple[tuple[str, Kind], ...]:
    fields: list[tuple[str, Kind]] = []
    for name, kind, rest in re.findall(r"(\w+): (\[?\w+\]?)([^;]*);", body):
        if kind in UNIONS:
            fields += [(f"{name}_type", Kind.U8), (name, Kind.OFFSET)]
        elif "= null" in rest:
            fields.append((name, Kind.NULLABLE_U16))
        else:
            fields.append((name, SCALARS.get(kind) or ENUMS.get(kind) or Kind.OFFSET))
    return tuple(fields)


def test_every_table_has_the_same_slots_in_both() -> None:
    schema = {name: fields_of(body) for name, body in re.findall(r"table (\w+) \{([^}]*)\}", TEXT)}
    code = {layout.name: layout.fields for layout in vars(tables).values() if isinstance(layout, Layout)}
    assert len(code) > 20
    assert code == schema
