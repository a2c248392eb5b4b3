"""docs/reference/settings.md: the reference of all settings, generated from their classes (``make gen``)."""

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shale.service.config.config_sources import Names, section_of
from shale.service.config.settings import DaemonSettings

NOT_ON_THE_PAGE = frozenset({("config",)})
"""``--config`` names the sources of settings and is not a setting."""

PAGE_WIDTH = 98
UNITS_S = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
UNITS_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, ""))

Rows = dict[Names, str]


def page(settings: Mapping[str, type[DaemonSettings]]) -> str:
    """Return the page as Markdown: the settings of all daemons, then the additional ones of each daemon.

    ``settings``: the settings class of each daemon by its name.
    """
    tables = {role: dict(_rows(model)) for role, model in settings.items()}
    first, *others = tables.values()
    common = {names: row for names, row in first.items() if all(table.get(names) == row for table in others)}
    own = {role: {names: row for names, row in table.items() if names not in common} for role, table in tables.items()}
    lines = [*_head(), *_table("Every daemon", common)]
    for role, rows in own.items():
        wider = next((other for other, more in own.items() if rows.items() < more.items()), None)
        lines += _table(f"`shale {role}`", rows) if wider is None else _reference(role, wider, own[wider].keys() - rows)
    return "\n".join((*lines, ""))


def _reference(role: str, wider: str, without: Set[Names]) -> Sequence[str]:
    names = " and ".join(f"`{_dotted(each)}`" for each in sorted(without))
    return ("", f"## `shale {role}`", "", f"All of `shale {wider}`, except {names}.")


def _head() -> Sequence[str]:
    return (
        "# Settings",
        "",
        "Made by `make gen` from the settings of the daemons; a test compares both.",
        "[Configure Shale](../how-to/configure.md) describes where settings come from and how they are",
        "checked. `http.port` of the writer is `--set http.port=…` on the command line, `SHALE_HTTP__PORT`",
        "or `SHALE_WRITER__HTTP__PORT` in the environment, the secret file `writer__http__port`, and `port`",
        "in `[http]` or `[writer.http]` of a file.",
        "",
        "The value in parentheses is the default. A dash means that there is none; `needed` means that the",
        "setting is required if its section is used. Durations may be written `250ms`, `5m`, `1h30m`, sizes",
        "`64MiB`, `64MB`; plain numbers are seconds and bytes. Names with `[]` may be given several times:",
        "`[[filters]]` in a file.",
    )


def _table(title: str, rows: Rows) -> Sequence[str]:
    lines = [_wrapped(f"- `{_dotted(names)}` {row}") for names, row in rows.items()]
    return ("", f"## {title}", "", *lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        " ".join(text.split()), PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _dotted(names: Names) -> str:
    return ".".join(names)


def _rows(model: type[BaseModel], above: Names = ()) -> Iterator[tuple[Names, str]]:
    for name, found in model.model_fields.items():
        names = (*above, name)
        section = section_of(found.annotation)
        if section is not None:
            yield from _rows(section, (*above, f"{name}[]") if get_origin(found.annotation) is tuple else names)
        elif names not in NOT_ON_THE_PAGE:
            yield names, f"({_default(found)}): {_words(found)}"


def _words(found: FieldInfo) -> str:
    choices = [choice for each in _parts(found.annotation) if get_origin(each) is Literal for choice in get_args(each)]
    values = f"One of {', '.join(f'`{choice}`' for choice in choices)}.  " if choices else ""
    return f"{values}{found.description or ''}".strip()


def _default(found: FieldInfo) -> str:
    if found.is_required():
        return "needed"
    if found.default_factory is not None:
        return "host name"
    value = found.default
    if value is None or value in ((), {}, ""):
        return "–"
    kinds = _kinds(found)
    if "_seconds" in kinds:
        return f"`{_in_units(value, UNITS_S)}`" if value >= 1 else f"`{value * 1000:g}ms`" if value else "`0`"
    if "_bytes" in kinds:
        return f"`{_in_units(value, UNITS_BYTES)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _in_units(value: float, units: Sequence[tuple[int, str]]) -> str:
    size, unit = next((each for each in units if value >= each[0] and value % each[0] == 0), units[-1])
    return f"{value / size:g}{unit}" if size > 1 else f"{value:.12g}{unit}"


def _kinds(found: FieldInfo) -> set[str]:
    """Return the names of the functions that parse a value; they distinguish durations and sizes from numbers."""
    metadata = [
        *found.metadata,
        *(item for each in _parts(found.annotation) for item in getattr(each, "__metadata__", ())),
    ]
    return {getattr(getattr(item, "func", None), "__name__", "") for item in metadata}


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) not in (Annotated, Literal):
        yield from get_args(annotation)


def main() -> None:
    """Print the page."""
    from shale_cli.framework.daemons import DAEMONS, settings_class

    sys.stdout.write(page({role: settings_class(role) for role in DAEMONS}))


if __name__ == "__main__":
    main()
