"""The last line of a daemon, and its exit code."""

from collections.abc import Callable

from shale.errors import CorruptionError, FencedError, ProtocolPanic
from shale.service.exit_codes import ExitCode, daemon_exit_code, worst_error
from shale.service.shutdown import Stop
from shale.telemetry.events import Event
from shale.telemetry.log import EventLog

Undurable = Callable[[], "tuple[int, int] | None"]
"""The first and last seq that are accepted and not durable."""


def log_end(log: EventLog, stop: Stop, undurable: Undurable | None) -> int:
    """Say how a stop without an error came out."""
    if stop is Stop.CUT_SHORT:
        first_seq, last_seq = (undurable() if undurable is not None else None) or (None, None)
        log.error(Event.SHUTDOWN_INCOMPLETE, first_seq=first_seq, last_seq=last_seq)
        return ExitCode.TEMPFAIL
    log.info(Event.SHUTDOWN_DONE)
    return ExitCode.OK


def log_failure(log: EventLog, error: BaseException, *, started: bool) -> int:
    """Say what ended the process, in one line; only an unexpected error brings its traceback."""
    worst = worst_error(error)
    code = daemon_exit_code(error, started=started)
    match worst:
        case ProtocolPanic():
            log.critical(Event.PROTOCOL_PANIC, invariant=worst.invariant, state=worst.state, exit_code=int(code))
        case FencedError():
            # Who was fenced has said so, once.
            log.info(Event.SHUTDOWN_DONE, reason="fenced", error=str(worst), exit_code=int(code))
        case CorruptionError():
            log.error(Event.DAEMON_FAILED, error=worst, path=worst.path, offset=worst.offset, exit_code=int(code))
        case _:
            unexpected = code is ExitCode.ERROR
            log.error(Event.DAEMON_FAILED, error=worst, exit_code=int(code), exc_info=worst if unexpected else None)
    return code
