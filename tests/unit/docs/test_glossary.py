"""The glossary: at most 60 terms, in order, each with the source of its word."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/reference/glossary.md"
TERM = re.compile(r"^(\S.*)\n:   (.+)$", re.MULTILINE)


def test_terms_are_few_and_each_has_a_source() -> None:
    terms = TERM.findall(PAGE.read_text())
    assert 40 <= len(terms) <= 60
    assert len(terms) == PAGE.read_text().count("\n:   ")
    for name, text in terms:
        assert re.search(r"\S\. \[[^\]]{3,}\]$", text), name


def test_terms_are_in_order_and_unique() -> None:
    names = [name.lower() for name, _ in TERM.findall(PAGE.read_text())]
    assert names == sorted(set(names))
