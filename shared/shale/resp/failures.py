"""What clients are told when a command cannot be done.

The first word is the kind, as clients of Redis know it: ``ERR`` for a mistake of the caller, ``TRYAGAIN`` where waiting
helps, ``READONLY`` where another process must be asked.
"""

from collections.abc import Sequence

from shale.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    ShaleError,
    TransactionConflict,
    UnavailableError,
)

SHOWN_BYTES_MAX = 128

SYNTAX = "ERR syntax error"
NOT_A_NUMBER = "ERR value is not an integer or out of range"
DRAINING = "ERR draining: the server is stopping"
NOT_AUTHENTICATED = "NOAUTH Authentication required."
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."  # noqa: S105 - says that one is wrong
TOO_SLOW = (
    "TRYAGAIN the command was given up after {:g} s; what it was to write was not written, or its outcome is unknown"
)
READ_ONLY = "READONLY You can't write against a read only replica: connect to the writer."
OUR_MISTAKE = "ERR a mistake of the server; see its log"


class RespError(Exception):
    """A command that was refused; its text is the answer, with the kind as its first word."""


def shown(name: bytes) -> str:
    """Some bytes of a client, fit for an answer."""
    return "".join(chr(each) if 32 <= each < 127 else "?" for each in name[:SHOWN_BYTES_MAX])


def unknown_command(args: Sequence[bytes]) -> str:
    """There is no such command; says what it was called with, as Redis does."""
    begin, room = "", SHOWN_BYTES_MAX
    for arg in args[1:]:
        if room <= 0:
            break
        part = f"'{shown(arg[:room])}' "
        begin += part
        room -= len(part)
    return f"ERR unknown command '{shown(args[0])}', with args beginning with: {begin}"


def unknown_subcommand(name: str, word: bytes) -> RespError:
    """A command has no such part."""
    return RespError(f"ERR unknown subcommand '{shown(word)}' of '{name}'")


def wrong_arity(name: str) -> str:
    """Too few or too many arguments."""
    return f"ERR wrong number of arguments for '{name}' command"


def text_of(error: ShaleError) -> str:
    """What the engine said, with the kind that a client knows."""
    match error:
        case InvalidRequestError():
            return f"ERR {error}"
        case FencedError():
            return f"READONLY another writer took over: {error}"
        case TransactionConflict():
            return f"TRYAGAIN {error}"
        case UnavailableError():
            return f"TRYAGAIN the store does not answer: {error}"
        case CorruptionError():
            return f"ERR corrupt data: {error}"
        case ClosedError():
            return f"ERR closed: {error}"
        case _:
            return f"ERR {error}"
