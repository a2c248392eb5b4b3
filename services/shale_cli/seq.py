"""``shale seq``: when which sequence number was reached."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.session import Session, run

if TYPE_CHECKING:
    from datetime import datetime

app = typer.Typer(
    help="When the database reached a sequence number, as the newest manifest knows it: points about a minute apart.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Round(StrEnum):
    """Which of the known points answers."""

    UP = "up"
    DOWN = "down"


Rounding = Annotated[Round, typer.Option("--round", help="The first known point after it, or the last one before.")]
Seq = Annotated[int, typer.Argument(help="A sequence number.", min=0)]


@app.command("to-time", epilog="Example:  shale seq to-time 12345 -u s3://bucket/db")
def to_time(context: typer.Context, seq: Seq, *, rounding: Rounding = Round.DOWN) -> None:
    """The time at which a sequence number was reached; exit code 3 if no point is known."""

    async def work(session: Session) -> None:
        from shale.admin.admin import Admin
        from shale.errors import InvalidRequestError, NotFoundError

        if seq >= 2**64:
            raise InvalidRequestError(f"{seq} is no sequence number: they have 64 bits")
        async with Admin(**session.place, env=session.env) as admin:
            time = await admin.time_of(seq, round_up=rounding is Round.UP)
        if time is None:
            raise NotFoundError(f"no point is known {_side(rounding)} sequence number {seq}")
        _show(session, seq, time)

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
    """The sequence number that was reached at a time; exit code 3 if no point is known."""

    async def work(session: Session) -> None:
        from shale.admin.admin import Admin
        from shale.errors import NotFoundError

        moment = parse_moment(time)
        async with Admin(**session.place, env=session.env) as admin:
            seq = await admin.seq_at(moment, round_up=rounding is Round.UP)
        if seq is None:
            raise NotFoundError(f"no point is known {_side(rounding)} {moment.isoformat()}")
        _show(session, seq, moment)

    run(context, work)


def parse_moment(text: str) -> "datetime":
    """A time as people write it.

    Raises:
        InvalidRequestError: neither seconds nor RFC 3339 with a zone, or beyond what a calendar knows.
    """
    from datetime import UTC, datetime

    from shale.errors import InvalidRequestError

    try:
        if text.lstrip("-").isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequestError(f"{text!r}: write a time such as 2026-01-31T12:00:00Z, or seconds since 1970")
    return moment


def _side(rounding: Round) -> str:
    return "at or after" if rounding is Round.UP else "at or before"


def _show(session: Session, seq: int, time: "datetime") -> None:
    from shale.admin.json_values import time_fields

    data = {"seq": seq, **time_fields("time", round(time.timestamp() * 1000))}
    session.output.record(data, [("seq", seq), ("time", data["time"])])
