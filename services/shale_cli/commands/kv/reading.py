"""Options of ``shale kv`` that select the state and the keys to read."""

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.framework.output.wal_gaps import warn_of_gaps
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shale.engine.db_reader import DbReader

Pin = Annotated[bool, typer.Option("--pin", help="Create a checkpoint that protects the state during the read.")]
CheckpointId = Annotated[
    str | None, typer.Option(help="Read this checkpoint (id or name) instead of the latest state.")
]
Prefix = Annotated[str | None, typer.Option(help="Only keys with this prefix.")]
Start = Annotated[str | None, typer.Option(help="The first key, inclusive.")]
Stop = Annotated[str | None, typer.Option(help="The last key, exclusive.")]


@asynccontextmanager
async def open_reader(
    session: CliSession, *, pin: bool = False, checkpoint: str | None = None, allow_wal_gap: bool = False
) -> "AsyncIterator[DbReader]":
    """Open a reader of the latest state or of a checkpoint; it writes nothing unless ``pin`` is set.

    ``allow_wal_gap``: leave lost WAL files out, and name them on stderr.

    Raises:
        InvalidRequestError: both ``pin`` and ``checkpoint`` are given.
    """
    from shale.engine.db_reader import DbReader
    from shale.errors import InvalidRequestError

    if pin and checkpoint is not None:
        raise InvalidRequestError("--pin cannot be used with --checkpoint, which already protects the state")
    place = {**session.database_args, "merge_operator": session.merge_operator, "allow_wal_gap": allow_wal_gap}
    if checkpoint is None and not pin and sys.stderr.isatty():
        session.output.note(
            "reading without a checkpoint; garbage collection may make the read fail (--pin prevents that)"
        )
    opened = DbReader.open(**place, checkpoint=checkpoint, follow_latest=checkpoint is None and not pin)
    async with opened as reader:
        warn_of_gaps(reader.wal_gaps)
        yield reader


def bounds(output: Output, prefix: str | None, start: str | None, stop: str | None) -> dict[str, Any]:
    """Return the arguments of ``scan`` for these options.

    Raises:
        InvalidRequestError: a key is not in the key format.
    """
    named = {"prefix": prefix, "start": start, "stop": stop}
    return {name: None if text is None else output.parse(text) for name, text in named.items()}
