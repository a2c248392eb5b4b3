"""``make gen-schemas``: writes ``shale._generated`` from the schemas beside this file.

``flatc`` writes the builders and accessors of every table; this script adds the layouts that the verifier walks, as
Python's FlatBuffers runtime has neither a verifier nor reflection.  The result is committed: building and installing
the package take no ``flatc``.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMAS = Path(__file__).parent
GENERATED = SCHEMAS.parent / "shared" / "shale" / "_generated"
ROOT_SCHEMA = "compactions.fbs"
"""Includes all others, directly or not."""
_SCALARS = {"byte", "ubyte", "bool", "short", "ushort", "int", "uint", "long", "ulong"}
_LAYOUTS_HEAD = '''"""Layouts of the tables in ``schemas/``.  Written by ``make gen-schemas``; do not edit."""

TABLES: dict[str, tuple[tuple[str, str, bool], ...]] = {
'''
_LAYOUTS_FOOT = '''"""Table to its fields in slot order: name, type, whether it is required.

A union takes two slots, its type and its value.
"""
'''


def main() -> None:
    """Run ``flatc`` and write both modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flatc", default="flatc", help="the FlatBuffers compiler, 24.3 or later")
    flatc = parser.parse_args().flatc
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "schema.py").write_text(generated_code(flatc))
    (GENERATED / "layouts.py").write_text(layouts_code())
    sys.stdout.write(f"wrote {GENERATED}/schema.py and layouts.py\n")


def generated_code(flatc: str) -> str:
    """Return what ``flatc`` generates for all tables, as one module."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--python", "--gen-onefile", "--gen-all")
        subprocess.run([flatc, *options, "-o", folder, str(SCHEMAS / ROOT_SCHEMA)], check=True)  # noqa: S603 - the developer names the compiler
        (module,) = Path(folder).glob("*_generated.py")
        code = module.read_text()
    # The one change: tables of verified buffers need none of the checks that the runtime repeats at every read.
    code = code.replace("self._tab = flatbuffers.table.Table(", "self._tab = VerifiedTable(")
    return code.replace(
        "import flatbuffers\n", "import flatbuffers\n\nfrom shale._generated.table import VerifiedTable\n", 1
    )


def layouts_code() -> str:
    """Return the module of layouts that ``schemas/*.fbs`` describe."""
    text = re.sub(r"//[^\n]*", "", "\n".join(path.read_text() for path in sorted(SCHEMAS.glob("*.fbs"))))
    enums = dict(re.findall(r"enum (\w+): (\w+)", text))
    unions = {name: re.findall(r"\w+", body) for name, body in re.findall(r"union (\w+) \{([^}]*)\}", text)}
    lines = [_LAYOUTS_HEAD]
    for table, body in re.findall(r"table (\w+) \{([^}]*)\}", text):
        lines.append(f'    "{table}": (\n')
        for name, type_, rest in re.findall(r"(\w+): (\[?\w+\]?)([^;]*);", body):
            if type_ in unions:
                lines.append(f'        ("{name}_type", "ubyte", False),\n')
            lines.append(f'        ("{name}", "{enums.get(type_, type_)}", {"required" in rest}),\n')
        lines.append("    ),\n")
    lines += ["}\n", _LAYOUTS_FOOT, "\nUNIONS: dict[str, tuple[str, ...]] = {\n"]
    for name, members in unions.items():
        listed = ", ".join(f'"{member}"' for member in members)
        lines.append(f'    "{name}": ({listed}{"," if len(members) == 1 else ""}),\n')
    lines += ["}\n", '"""Union to its tables; the first one has type 1."""\n']
    return "".join(lines)


if __name__ == "__main__":
    main()
