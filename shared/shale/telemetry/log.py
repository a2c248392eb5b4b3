"""Loggers whose events come from the catalogue: structlog on top of the standard library.

The library only emits.  A record carries the event and its fields, and the process that embeds the library decides what
becomes of it (``shale.telemetry.log_output`` for our daemons).  One that decides nothing sees hints: ``HintHandler``.

Importing structlog takes as long as a small command, because it brings rich.  A logger therefore imports it with the
first line that is written; below the chosen level a call costs one cached comparison.
"""

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from shale.telemetry.error_types import error_type_of
from shale.telemetry.events import Event

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.typing import EventDict, WrappedLogger

LIMIT_S = 1.0
"""Identical event and error type are written at most once in this time; the next line counts what was dropped."""


class HintHandler(logging.Handler):
    """Writes warnings that say what to do to stderr, for programs that have configured no logging.

    All other records of such a program are dropped.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the hint of a record that no other handler gets."""
        line = record.msg
        if isinstance(line, dict) and "hint" in line and not self._has_others():
            sys.stderr.write(f"shale: {line.get('event')}: {line['hint']}\n")

    def _has_others(self) -> bool:
        inherited = logging.getLogger().handlers if _ROOT.propagate else []
        return any(each is not self for each in (*_ROOT.handlers, *inherited))


_ROOT = logging.getLogger("shale")
_ROOT.addHandler(HintHandler(logging.WARNING))


class RateLimit:
    """Counts the lines that are not written.  Only lines about errors are limited: every state change gets its line."""

    def __init__(self) -> None:
        self._next_s: dict[tuple[str, str], float] = {}
        self._suppressed: dict[tuple[str, str], int] = {}

    def admit(self, event: str, error_type: str, now_s: float) -> int | None:
        """Return how many lines were suppressed since the last one; ``None`` if this one is suppressed as well."""
        what = (event, error_type)
        if now_s < self._next_s.get(what, 0.0):
            self._suppressed[what] = self._suppressed.get(what, 0) + 1
            return None
        self._next_s[what] = now_s + LIMIT_S
        return self._suppressed.pop(what, 0)


RATE_LIMIT = RateLimit()


class LazyLogger:
    """A structlog logger of one component that is made when it is first needed."""

    __slots__ = ("_bound", "_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = logger
        self._fields = fields
        self._bound: BoundLogger | None = None

    def bind(self, **fields: Any) -> "LazyLogger":
        """Return the same logger with more fields on every line."""
        return LazyLogger(self._logger, {**self._fields, **fields})

    @property
    def is_debug_enabled(self) -> bool:
        """Whether ``debug`` writes anything, for lines whose fields are expensive to compute."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: Event, **fields: Any) -> None:
        """Log a decision."""
        if self._logger.isEnabledFor(logging.DEBUG):
            (self._bound or self._bind()).debug(event, **fields)

    def info(self, event: Event, **fields: Any) -> None:
        """Log a change of state."""
        if self._logger.isEnabledFor(logging.INFO):
            (self._bound or self._bind()).info(event, **fields)

    def warning(self, event: Event, **fields: Any) -> None:
        """Log a condition that docs/reference/logs.md lists as a warning."""
        if self._logger.isEnabledFor(logging.WARNING):
            (self._bound or self._bind()).warning(event, **fields)

    def error(self, event: Event, **fields: Any) -> None:
        """Log a failure that an operator must look at."""
        if self._logger.isEnabledFor(logging.ERROR):
            (self._bound or self._bind()).error(event, **fields)

    def critical(self, event: Event, **fields: Any) -> None:
        """Log a broken invariant."""
        (self._bound or self._bind()).critical(event, **fields)

    def _bind(self) -> "BoundLogger":
        import structlog

        bound: BoundLogger = structlog.wrap_logger(
            self._logger,
            processors=[name_event, describe_error, limit_errors, to_record],
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
            **self._fields,
        ).bind()
        self._bound = bound
        return bound


def get_logger(component: str, **fields: Any) -> LazyLogger:
    """Return the logger of a component, for example ``get_logger("gc")``.

    Fields given to a call are values, or ``error=`` an exception, which is written as its text and its type; keys of
    rows are given as ``bytes`` and are shortened when they are written.
    """
    return LazyLogger(_ROOT.getChild(component), {"component": component, **fields})


def name_event(_logger: "WrappedLogger", _method: str, line: "EventDict") -> "EventDict":
    """Put the event first, as plain text.  A structlog processor, as are the next three."""
    return {"event": str(line.pop("event")), **line}


def describe_error(_logger: "WrappedLogger", _method: str, line: "EventDict") -> "EventDict":
    """Replace an exception by its text and add its type."""
    error = line.get("error")
    if isinstance(error, BaseException):
        line["error"] = str(error) or type(error).__name__
        line.setdefault("error_type", error_type_of(error).value)
    return line


def limit_errors(_logger: "WrappedLogger", _method: str, line: "EventDict") -> "EventDict":
    """Drop a line about an error that was written a moment ago.

    Raises:
        structlog.DropEvent: it was.
    """
    if "error_type" in line:
        suppressed = RATE_LIMIT.admit(line["event"], str(line["error_type"]), time.monotonic())
        if suppressed is None:
            from structlog import DropEvent

            raise DropEvent
        if suppressed:
            line["suppressed"] = suppressed
    return line


def to_record(logger: "WrappedLogger", method: str, line: "EventDict") -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the arguments of ``logging``: the line as the message, for ``ProcessorFormatter`` or any other formatter."""
    return (line,), {"exc_info": line.get("exc_info"), "extra": {"_logger": logger, "_name": method}}
