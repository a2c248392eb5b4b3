"""Read the tables of docs/reference/design-documents.md: sections of the design documents, their code and tests.

A section is a row with its title and the function that implements it, then two rows without a title: the file of the
test and its name.  Sections that say nothing about code have one row, without any of them.
"""

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/design-documents.md"
_ROW = re.compile(r"\| (?P<title>.*?) ?\| (?P<cell>.*) \|$")
_FILE = re.compile(r"`(?P<file>[\w/]+\.py)`")
_TEST = re.compile(r"`(?P<name>test_\w+)`")
_CODE = re.compile(r"`(?P<path>shale[\w.]+)`")


@dataclass(frozen=True, slots=True)
class Section:
    """One section with its function, as a dotted path, and the id of its test."""

    document: str
    title: str
    function: str
    test: str


def read_sections(text: str) -> list[Section]:
    """Return the sections that have code.

    Raises:
        ValueError: a section has a function without a test, or the other way round.
    """
    found: list[Section] = []
    document, title, function, file = "", "", "", ""
    for line in text.splitlines():
        if line.startswith("## "):
            document = line[3:]
        row = _ROW.fullmatch(line)
        if row is None:
            continue
        has_title, cell = bool(row["title"]), row["cell"]
        if has_title and not function and (code := _CODE.fullmatch(cell)):
            title, function = row["title"], code["path"]
        elif not has_title and function and not file and (named := _FILE.fullmatch(cell)):
            file = named["file"]
        elif not has_title and file and (test := _TEST.fullmatch(cell)):
            found.append(Section(document, title, function, f"tests/unit/{file}::{test['name']}"))
            function, file = "", ""
        elif function or not has_title or cell.startswith("`"):
            raise ValueError(f"a function is followed by its test: {line}")
    return found


def function_at(path: str) -> FunctionType:
    """Import the function or method at a dotted path, without its decorators.

    Raises:
        LookupError: there is none; says which part is missing.
    """
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                raise LookupError(f"{path}: {found.__name__} has no {part}")
            found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
        if isinstance(found, classmethod | staticmethod) or inspect.ismethod(found):
            found = found.__func__
        if isinstance(found, property):
            found = found.fget
        found = inspect.unwrap(found)
        if not inspect.isfunction(found):
            raise LookupError(f"{path} is no function")
        return found
    raise LookupError(f"{path}: there is no such module")


def has_test(test_id: str) -> bool:
    """Return whether a test with this id is defined."""
    file, _, name = test_id.partition("::")
    path = ROOT / file
    return path.exists() and re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE) is not None
