"""The tables of docs/reference/design-documents.md name functions and tests that exist."""

import pytest

from tests.checks.design_table import PAGE, Section, function_at, has_test, read_sections
from tests.checks.mutated_function import mutate

SECTIONS = read_sections(PAGE.read_text())
DOCUMENTS = {
    "Manifest design",
    "Checkpoints and clones",
    "Boundary files of the garbage collector",
    "Persistent state of compactions",
    "Files",
}


def test_every_document_has_sections() -> None:
    assert {section.document for section in SECTIONS} == DOCUMENTS
    assert len(SECTIONS) >= 80


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.document}, {section.title}")
def test_the_function_and_the_test_exist(section: Section) -> None:
    assert callable(function_at(section.function))
    assert has_test(section.test), section.test


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param("| a | `shale.errors.x` |\n| b | `shale.errors.y` |", id="no test"),
        pytest.param("| | `a/test_b.py` |\n| | `test_c` |", id="no function"),
        pytest.param("| a | `shale.errors.x` |\n| | text |", id="no test but text"),
    ],
)
def test_a_section_without_one_of_both_is_refused(rows: str) -> None:
    with pytest.raises(ValueError, match="is followed by its test"):
        read_sections(rows)


@pytest.mark.parametrize("path", ["shale.errors", "shale.nothing.here", "shale.clones.union.unites", "shale.env.Env"])
def test_only_functions_are_found(path: str) -> None:
    with pytest.raises(LookupError, match=path):
        function_at(path)


def test_a_mutated_function_raises_wherever_it_was_imported() -> None:
    def one(first: int, *, second: int = 2) -> int:
        return first + second + offset

    offset, imported = 3, one
    assert imported(1) == 6
    mutate(one)
    with pytest.raises(AssertionError, match="mutated"):
        imported(1)
