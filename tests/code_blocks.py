"""The code blocks of the pages.

A comment above a block names the reason why it is not executed::

    <!-- not run: needs Docker -->        not even parsed: it uses programs that the tests do not know
    <!-- parsed only: needs an account --> its command lines are parsed, and not executed
    <!-- output -->                        text that the shell block before it prints; ``…`` stands for anything

``<!-- parsed only on this page: why -->`` holds for all shell blocks of a page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import REPOSITORY

PAGES = sorted([REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")])
_BLOCK = re.compile(
    r"(?:<!-- (?P<marker>not run|parsed only|output)(?:: (?P<why>[^>]+))? -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_PARSED_PAGE = re.compile(r"^<!-- parsed only on this page: (?P<why>[^>]+) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block and where it starts.

    ``not_run``, ``parsed_only``: the reason, or ``None``.  ``is_output``: it shows what the block before it prints.
    """

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    parsed_only: str | None = None
    is_output: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page."""
    text = page.read_text()
    parsed_page = _PARSED_PAGE.search(text)
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        marker, why = match["marker"], match["why"]
        of_page = parsed_page["why"] if parsed_page and match["language"] == "sh" else None
        yield Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            "".join(line[indent:] for line in match["text"].splitlines(keepends=True)),
            not_run=(why or "") if marker == "not run" else None,
            parsed_only=(why or "") if marker == "parsed only" else of_page,
            is_output=marker == "output",
        )


def commands(text: str) -> list[str]:
    """Return the command lines of a shell block, continued lines joined, without comments and empty lines."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
