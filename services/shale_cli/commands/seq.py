"""``shale seq``: converts between sequence numbers and times."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from datetime import datetime

T = TypeVar("T")
app = typer.Typer(
    help="Convert between sequence numbers and times, from points in the latest manifest about a minute apart.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Round(StrEnum):
    """Which of the known points to use."""

    UP = "up"
    DOWN = "down"


Rounding = Annotated[
    Round, typer.Option("--round", help="up: the first known point after it; down: the last one before it.")
]
Seq = Annotated[int, typer.Argument(help="A sequence number.", min=0)]


@app.command("to-time", epilog="Example:  shale seq to-time 12345 -u s3://bucket/db")
def to_time(context: typer.Context, seq: Seq, *, rounding: Rounding = Round.DOWN) -> None:
    """Print the time at which a sequence number was reached; exit 3 if no point is known."""

    async def work(session: CliSession) -> None:
        from shale.errors import InvalidRequestError

        if seq >= 2**64:
            raise InvalidRequestError(f"{seq} is not a sequence number: the largest has 64 bits")
        async with session.admin() as admin:
            time = await admin.time_of(seq, round_up=rounding is Round.UP)
        _show(session, seq, _known(time, rounding, f"sequence number {seq}"))

    run(context, work)


@app.command(
    "from-time",
    epilog="Examples:  shale seq from-time 2026-01-31T12:00:00Z -u s3://bucket/db  |  "
    "shale seq from-time 1769860800 --round up -u s3://bucket/db",
)
def from_time(
    context: typer.Context,
    time: Annotated[str, typer.Argument(help="RFC 3339 with a zone, or seconds since 1970.")],
    *,
    rounding: Rounding = Round.DOWN,
) -> None:
    """Print the sequence number that was reached at a time; exit 3 if no point is known."""

    async def work(session: CliSession) -> None:
        at = parse_time(time)
        async with session.admin() as admin:
            seq = await admin.seq_at(at, round_up=rounding is Round.UP)
        _show(session, _known(seq, rounding, at.isoformat()), at)

    run(context, work)


def parse_time(text: str) -> "datetime":
    """Parse a time.

    Raises:
        InvalidRequestError: the text is neither seconds nor RFC 3339 with a zone, or out of range.
    """
    from datetime import UTC, datetime

    from shale.errors import InvalidRequestError

    try:
        if text.lstrip("-").isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidRequestError(f"{text!r}: write a time such as 2026-01-31T12:00:00Z, or seconds since 1970")
    return at


def _known(point: T | None, rounding: Round, asked: str) -> T:
    """Return the point.

    Raises:
        NotFoundError: there is none.
    """
    from shale.errors import NotFoundError

    if point is None:
        side = "at or after" if rounding is Round.UP else "at or before"
        raise NotFoundError(f"no point is known {side} {asked}")
    return point


def _show(session: CliSession, seq: int, time: "datetime") -> None:
    from shale.admin.json_values import time_fields

    data = {"seq": seq, **time_fields("time", round(time.timestamp() * 1000))}
    session.output.record(data, [("seq", seq), ("time", data["time"])])
