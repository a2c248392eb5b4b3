"""Values that need no conversion are those that typer would make."""

import enum
from contextlib import redirect_stderr
from io import StringIO
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from shale_cli.framework.plain_values import skip_conversions


class Kind(enum.StrEnum):
    """Values of an option."""

    A = "a"


def outcome(words: list[str], *, is_skipping: bool) -> tuple[Any, str, Any]:
    """Return exit code, errors and values of a command with parameters of many types."""
    seen: list[Any] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def command(
        key: str,
        keys: Annotated[list[str] | None, typer.Argument()] = None,
        *,
        raw: Annotated[bool, typer.Option("--raw")] = False,
        text: Annotated[str | None, typer.Option()] = None,
        upper: Annotated[str, typer.Option(parser=str.upper)] = "none",
        limit: Annotated[int | None, typer.Option(min=1, max=9)] = None,
        port: Annotated[int, typer.Option()] = 8080,
        share: Annotated[float, typer.Option(min=0.5)] = 1.0,
        kind: Annotated[Kind, typer.Option()] = Kind.A,
        many: Annotated[list[str] | None, typer.Option()] = None,
    ) -> None:
        seen.append([(type(each), each) for each in (key, keys, raw, text, upper, limit, port, share, kind, many)])

    @app.command()
    def other() -> None:
        """Keep typer from turning an application with one command into that command."""

    made = get_command(app)
    if is_skipping:
        skip_conversions(made, made.context_class(made, info_name="x"), ["command", *words])
    with redirect_stderr(StringIO()) as said, pytest.raises(SystemExit) as ended:
        made.main(["command", *words], prog_name="x")
    return ended.value.code, said.getvalue(), seen


@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        [],
        ["a", "b", "c"],
        ["ü", "--raw", "--text", ""],
        ["a", "--limit", "007", "--port", "0", "--share", "0.5"],
        ["a", "--limit", "0"],
        ["a", "--limit", "10"],
        ["a", "--limit", "x"],
        ["a", "--limit", "-1"],
        ["a", "--limit", " 3"],
        ["a", "--limit", "٣"],
        ["a", "--port", "9" * 18],
        ["a", "--port", "9" * 19],
        ["a", "--port", "1.0"],
        ["a", "--upper", "b", "--kind", "a"],
        ["a", "--kind", "b"],
        ["a", "--share", "0.1"],
        ["a", "--many", "b", "--many", "c"],
    ],
)
def test_each_value_and_error_is_that_of_typer(words: list[str]) -> None:
    assert outcome(words, is_skipping=True) == outcome(words, is_skipping=False)
