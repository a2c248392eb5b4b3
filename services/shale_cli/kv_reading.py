"""How ``shale kv`` reads: which state, which keys."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.output import Output
from shale_cli.session import Session

if TYPE_CHECKING:
    from shale.engine.db_reader import DbReader
    from shale.engine.opening import Opening

Pin = Annotated[bool, typer.Option("--pin", help="Protect what is read by a checkpoint while reading; writes one.")]
CheckpointId = Annotated[str | None, typer.Option(help="Read this checkpoint (id or name), and not the newest state.")]
Prefix = Annotated[str | None, typer.Option(help="Only keys that begin with this.")]
Start = Annotated[str | None, typer.Option(help="The first key, inclusive.")]
Stop = Annotated[str | None, typer.Option(help="The last key, exclusive.")]


def open_reader(session: Session, *, pin: bool = False, checkpoint: str | None = None) -> "Opening[DbReader]":
    """A reader of the newest state, or of a checkpoint; it writes nothing unless it shall ``pin`` what it reads.

    Raises:
        InvalidRequestError: both were said.
    """
    from shale.engine.db_reader import DbReader
    from shale.errors import InvalidRequestError

    if pin and checkpoint is not None:
        raise InvalidRequestError("a checkpoint protects what is read: --pin adds nothing to --checkpoint")
    place = {**session.place, "merge_operator": session.merge_operator}
    if checkpoint is not None:
        return DbReader.open(**place, checkpoint=checkpoint)
    if not pin and sys.stderr.isatty():
        session.output.note("reading without a checkpoint: if garbage is collected underneath, this fails (--pin)")
    return DbReader.open(**place, follow_latest=not pin)


def bounds(output: Output, prefix: str | None, start: str | None, stop: str | None) -> dict[str, Any]:
    """The arguments of ``scan`` that options name.

    Raises:
        InvalidRequestError: a key is not in the key format.
    """
    named = {"prefix": prefix, "start": start, "stop": stop}
    return {name: None if text is None else output.parse(text) for name, text in named.items()}
