"""Error replies.

The first word is an error code of Redis: ``ERR`` for an invalid command, ``TRYAGAIN`` if a retry may succeed,
``OOM`` if memory is full,
``READONLY`` if the client must connect to the writer.
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
TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
DRAINING = "ERR draining: the server is stopping"
NOT_AUTHENTICATED = "NOAUTH Authentication required."
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."  # noqa: S105 - an error message
TOO_SLOW = "TRYAGAIN the command timed out after {:g} s; its writes were not applied, or their outcome is unknown"
TRANSACTION_TOO_OLD = "ERR the transaction is older than {:g} s and holds much memory; nothing was written"
OUT_OF_MEMORY = "OOM command not allowed: the process holds as much memory as it may (memory.limit); try again later"
READ_ONLY = "READONLY You can't write against a read only replica: connect to the writer."
INTERNAL_ERROR = "ERR internal server error; see the server's log"


class RespError(Exception):
    """A rejected command; the message is the error reply, with the error code as its first word."""


def shown(name: bytes) -> str:
    """Return bytes of a client in a printable form, shortened."""
    return "".join(chr(each) if 32 <= each < 127 else "?" for each in name[:SHOWN_BYTES_MAX])


def unknown_command(args: Sequence[bytes]) -> str:
    """Return the reply to an unknown command; it quotes the first arguments, as Redis does.

    Those of ``ACL``, which Redis knows, may be passwords.
    """
    begin, room = "", SHOWN_BYTES_MAX
    for arg in args[1:] if args[0].upper() != b"ACL" else ():
        if room <= 0:
            break
        part = f"'{shown(arg[:room])}' "
        begin += part
        room -= len(part)
    return f"ERR unknown command '{shown(args[0])}', with args beginning with: {begin}"


def unknown_subcommand(name: str, word: bytes) -> RespError:
    """Return the error for an unknown subcommand."""
    return RespError(f"ERR unknown subcommand '{shown(word)}' of '{name}'")


def no_permission(user: bytes, name: str) -> str:
    """Return the reply to a command that the role of the client does not allow."""
    return f"NOPERM User {shown(user)} has no permissions to run the '{name}' command"


def wrong_arity(name: str) -> str:
    """Return the reply to a command with too few or too many arguments."""
    return f"ERR wrong number of arguments for '{name}' command"


def invalid_expiry(command: str) -> RespError:
    """Return the error for an impossible time of expiry."""
    return RespError(f"ERR invalid expire time in '{command}' command")


def error_text(error: ShaleError) -> str:
    """Return the reply to an error of the engine."""
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
