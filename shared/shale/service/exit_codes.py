"""Exit codes, an interface for scripts and Kubernetes jobs (docs/reference/exit-codes.md)."""

from collections.abc import Iterator
from enum import IntEnum

from shale.errors import (
    AccessDenied,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    ProtocolPanic,
    StoreUnsafe,
    UnavailableError,
    UnknownCheckpoint,
)


class ExitCode(IntEnum):
    """65 to 78 have their ``sysexits`` meaning; ``sysexits`` leaves 80 and above free."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    NEGATIVE = 4
    DATA = 65
    UNAVAILABLE = 69
    PANIC = 70
    TEMPFAIL = 75
    NOPERM = 77
    CONFIG = 78
    FENCED = 80
    STORE_UNSAFE = 81
    INTERRUPTED = 130
    TERMINATED = 143


LINGERING_CODES = frozenset({ExitCode.DATA, ExitCode.PANIC, ExitCode.CONFIG, ExitCode.FENCED, ExitCode.STORE_UNSAFE})
"""Codes after which a restart changes nothing: the daemon stays for ``shutdown.linger``, so that it is scraped."""

_IN_A_DAEMON: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ProtocolPanic, ExitCode.PANIC),
    (CorruptionError, ExitCode.DATA),
    (StoreUnsafe, ExitCode.STORE_UNSAFE),
    (AccessDenied, ExitCode.NOPERM),
    (FencedError, ExitCode.FENCED),
    (UnknownCheckpoint, ExitCode.UNAVAILABLE),
    (InvalidRequestError, ExitCode.CONFIG),
    (NotFoundError, ExitCode.UNAVAILABLE),
    (UnavailableError, ExitCode.TEMPFAIL),
    (ConflictError, ExitCode.TEMPFAIL),
)
"""From the most to the least severe: of several errors the first match decides."""

_IN_A_COMMAND = {ExitCode.CONFIG: ExitCode.USAGE, ExitCode.UNAVAILABLE: ExitCode.NOT_FOUND}


def daemon_exit_code(error: BaseException, *, started: bool) -> ExitCode:
    """Return the exit code of a daemon that ends with this error; of a group the worst member decides.

    Args:
        error: the error that ended the daemon.
        started: whether the daemon was ever ready: an unreachable store is 69 before that and 75 afterwards.
    """
    code = _worst(error)
    if code is ExitCode.TEMPFAIL and not started and isinstance(worst_error(error), UnavailableError):
        return ExitCode.UNAVAILABLE
    return code


def command_exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of a command that ends with this error."""
    if isinstance(worst_error(error), UnavailableError):
        return ExitCode.UNAVAILABLE
    code = _worst(error)
    return _IN_A_COMMAND.get(code, code)


def worst_error(error: BaseException) -> BaseException:
    """Return the member of a group that decides the exit code; the error itself if it is not a group."""
    return min(_leaves(error), key=_rank)


def contains_fencing(error: BaseException) -> bool:
    """Whether the error, or a member of the group, is a fence."""
    return any(isinstance(each, FencedError) for each in _leaves(error))


def _worst(error: BaseException) -> ExitCode:
    rank = _rank(worst_error(error))
    return _IN_A_DAEMON[rank][1] if rank < len(_IN_A_DAEMON) else ExitCode.ERROR


def _rank(error: BaseException) -> int:
    for rank, (class_, _) in enumerate(_IN_A_DAEMON):
        if isinstance(error, class_):
            return rank
    return len(_IN_A_DAEMON)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
