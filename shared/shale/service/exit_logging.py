"""The last log line of a daemon, and its exit code."""

from collections.abc import Callable

from shale.errors import CorruptionError, FencedError, ProtocolPanic
from shale.service.exit_codes import ExitCode, daemon_exit_code, worst_error
from shale.service.shutdown import ShutdownState
from shale.telemetry.events import Event
from shale.telemetry.log import LazyLogger

Undurable = Callable[[], "tuple[int, int] | None"]
"""Returns the first and last sequence number that are accepted but not durable; ``None`` if all are durable."""


def log_shutdown(log: LazyLogger, stop: ShutdownState, undurable: Undurable | None) -> int:
    """Log the end of a stop without an error; return the exit code."""
    if stop is ShutdownState.DEADLINE_PASSED:
        first_seq, last_seq = (undurable() if undurable is not None else None) or (None, None)
        log.error(Event.SHUTDOWN_INCOMPLETE, first_seq=first_seq, last_seq=last_seq)
        return ExitCode.TEMPFAIL
    log.info(Event.SHUTDOWN_DONE)
    return ExitCode.OK


def log_failure(log: LazyLogger, error: BaseException, *, started: bool) -> int:
    """Log the error that ended the process and return the exit code; only an unexpected error logs its traceback."""
    worst = worst_error(error)
    code = daemon_exit_code(error, started=started)
    match worst:
        case ProtocolPanic():
            log.critical(Event.PROTOCOL_PANIC, invariant=worst.invariant, state=worst.state, exit_code=int(code))
        case FencedError():
            # The fenced part has logged the error already.
            log.info(Event.SHUTDOWN_DONE, reason="fenced", error=str(worst), exit_code=int(code))
        case CorruptionError():
            log.error(Event.DAEMON_FAILED, error=worst, path=worst.path, offset=worst.offset, exit_code=int(code))
        case _:
            unexpected = code is ExitCode.ERROR
            log.error(Event.DAEMON_FAILED, error=worst, exit_code=int(code), exc_info=worst if unexpected else None)
    return code
