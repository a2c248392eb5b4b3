"""The chart's README: a head, then every value with its default and the comment before it."""

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import NamedTuple

WIDTH = 98

_KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z]\w*):(?P<value> .*)?$")


class Value(NamedTuple):
    """One value: its full name, its default as YAML (``None`` for a group), and what the comment says."""

    name: str
    default: str | None
    text: str


def readme(head: str, values: str) -> str:
    """Return the page.

    Args:
        head: what comes before the values.
        values: the text of ``values.yaml``; a comment that begins with ``# --`` describes the next key.
    """
    lines = [head.rstrip(), ""]
    for value in documented(values):
        lines += _item(value)
    return "\n".join(lines) + "\n"


def _item(value: Value) -> Iterator[str]:
    default = "" if value.default is None else f" (`{value.default}`)"
    text = f": {' '.join(value.text.split())}" if value.text else ""
    yield from wrap(
        f"- `{value.name}`{default}{text}",
        WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def documented(values: str) -> Iterator[Value]:
    """Yield every key of the file that has a default, and every group that has a comment, in their order."""
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    lines = values.splitlines()
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#"):
            comment = [*comment, stripped.lstrip("# ")] if comment else []
        elif match := _KEY.match(line):
            indent = len(match["indent"])
            above = [(depth, name) for depth, name in above if depth < indent]
            name = ".".join([*(name for _, name in above), match["name"]])
            default = (match["value"] or "").strip() or _list_below(lines[number + 1 :], indent)
            if default or comment:
                yield Value(name, default, " ".join(comment))
            above.append((indent, match["name"]))
            comment = []
        else:
            comment = []


def _list_below(lines: list[str], indent: int) -> str | None:
    """Return a list in block form as one line."""
    items: list[str] = []
    for line in lines:
        if not line.startswith(f"{' ' * (indent + 2)}- "):
            break
        items.append(line.strip().removeprefix("- "))
    return f"[{', '.join(items)}]" if items else None
