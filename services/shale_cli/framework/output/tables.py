"""Tables.  On a terminal, cells are folded to fit its width; otherwise lines are as long as necessary.

Nothing is truncated, because a truncated id cannot be copied.
"""

import os
import sys
from collections.abc import Iterable, Sequence


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool, colored: bool) -> None:
    """Write rows with a header; without ``columns``, rows are names and values."""
    lines = [list(row) for row in rows]
    titles = [column.upper() for column in columns] if columns and headers else []
    if not lines and not titles:
        return
    if _is_wider_than_the_terminal(titles, lines):
        _write_folded(titles, lines, colored=colored)
    else:
        _write_aligned(titles, lines, colored=colored)


def is_colored(choice: str) -> bool:
    """Return whether to print colours for ``--color``; ``auto`` respects ``NO_COLOR`` and terminals without colours."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_wider_than_the_terminal(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> bool:
    if not sys.stdout.isatty():
        return False
    from shutil import get_terminal_size

    return sum(_widths(titles, lines)) + 2 * (len(lines[0] if lines else titles) - 1) > get_terminal_size().columns


def _widths(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    every = [titles, *lines] if titles else lines
    return [max(len(line[index]) for line in every) for index in range(len(every[0]))]


def _write_aligned(titles: Sequence[str], lines: Sequence[Sequence[str]], *, colored: bool) -> None:
    widths = _widths(titles, lines)
    if titles:
        header = _joined(titles, widths)
        sys.stdout.write(f"\x1b[1m{header}\x1b[0m\n" if colored else f"{header}\n")
    for line in lines:
        sys.stdout.write(f"{_joined(line, widths)}\n")


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _write_folded(titles: Sequence[str], lines: Sequence[Sequence[str]], *, colored: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        show_header=bool(titles),
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold" if colored else "none",
    )
    for index in range(len(lines[0] if lines else titles)):
        table.add_column(titles[index] if titles else "", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    Console(file=sys.stdout, highlight=False, no_color=not colored).print(table)
