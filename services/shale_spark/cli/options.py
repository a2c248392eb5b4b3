"""Options that several commands share, and their parsing."""

from collections.abc import Sequence
from typing import Annotated

import typer

from shale.errors import InvalidRequestError

Master = Annotated[
    str | None, typer.Option(help="local[2], spark://host:7077, k8s://…, sc://…; default: the settings.")
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark property; repeatable.")]
ValueFormat = Annotated[
    str | None, typer.Option(help="What values hold: json, msgpack, avro, utf8, or module:attribute.")
]
AvroSchema = Annotated[str | None, typer.Option(help="The record's schema as JSON, or @FILE.")]


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse a repeatable NAME=VALUE option.

    Raises:
        InvalidRequestError: one has no name or no value.
    """
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidRequestError(f"{option} {each}: write NAME=VALUE")
        found[name] = value
    return found


def text_or_file(given: str | None, option: str) -> str | None:
    """Return the text itself, or the content of the file after an @.

    Raises:
        InvalidRequestError: the file cannot be read.
    """
    if given is None or not given.startswith("@"):
        return given
    try:
        with open(given[1:], encoding="utf-8") as file:  # noqa: PTH123 - also /dev/stdin and its like
            return file.read()
    except OSError as error:
        raise InvalidRequestError(f"{option}: {error}") from error
