"""What a program is told after a mistake: ``mistakes.txt`` has the programs, and after ``->`` the texts."""

from pathlib import Path

import anyio
import pytest

from shale.errors import InvalidRequestError, NotOpen, UnknownOption, WrongType
from tests.unit.mistakes.program import make_databases, told

TABLE = Path(__file__).with_name("mistakes.txt").read_text().strip().split("\n\n")


def parts(block: str) -> tuple[str, str]:
    """Return the code of a block, and what follows it."""
    lines = block.splitlines()
    code = [line for line in lines if not line.startswith("-> ")]
    return "\n".join(code), "\n".join(line.removeprefix("-> ") for line in lines[len(code) :])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    anyio.run(make_databases, made)
    return made


@pytest.mark.parametrize("block", TABLE, ids=lambda block: block.splitlines()[0])
def test_a_mistake_is_explained(block: str, folder: Path) -> None:
    code, text = parts(block)
    assert anyio.run(told, code, folder) == text


def test_the_table_has_fifty_mistakes_and_none_twice() -> None:
    assert len({parts(block)[0] for block in TABLE}) == len(TABLE) >= 50


def test_no_mistake_is_told_in_terms_of_the_machinery() -> None:
    plain = ("TypeError:", "AttributeError:", "KeyError:", "ValueError:", "NoneType' object")
    assert not [block for block in TABLE for name in plain if f"-> {name}" in block]


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (InvalidRequestError, (ValueError,)),
        (WrongType, (ValueError, TypeError)),
        (UnknownOption, (ValueError, TypeError)),
        (NotOpen, (ValueError, AttributeError)),
    ],
)
def test_errors_are_also_the_standard_ones(error: type[Exception], bases: tuple[type[Exception], ...]) -> None:
    assert all(issubclass(error, base) for base in bases)
