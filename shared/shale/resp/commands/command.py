"""What is known of one command."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shale.resp.session import Session

Handler = Callable[[Session, list[bytes]], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One row of the table.

    Args:
        name: in lower case.
        arity: arguments with the name; negative: at least so many.
        handler: gets all arguments, the name first, and returns the answer.
        group: as Redis groups them.
        summary: one line for people.
        flags: as ``COMMAND INFO`` tells them.
        keys: places of the first and the last key and the step between them; zeros without keys.
        is_open: may be called before the password was said.
        is_immediate: runs at once in a transaction, instead of being queued.
        is_queueable: may be part of a transaction.
    """

    name: str
    arity: int
    handler: Handler
    group: str
    summary: str
    flags: tuple[str, ...] = ()
    keys: tuple[int, int, int] = (0, 0, 0)
    is_open: bool = False
    is_immediate: bool = False
    is_queueable: bool = True
