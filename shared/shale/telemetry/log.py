"""Loggers whose events come from the catalogue, on top of the standard library.

The library only emits: a record carries the event and its fields, and whoever owns the process decides what becomes
of it (``shale.telemetry.log_output`` for our daemons).  Below the chosen level a call costs one cached comparison.
"""

import logging
import time
from typing import Any

from shale.telemetry.error_types import error_type_of
from shale.telemetry.events import Event

LIMIT_S = 1.0
"""Identical event and error type are written at most once in this time; the next line says how many were not."""

_ROOT = logging.getLogger("shale")
_ROOT.addHandler(logging.NullHandler())


class RateLimit:
    """Counts what is not written.  Only lines about errors are limited: every state change deserves its line."""

    def __init__(self) -> None:
        self._next_s: dict[tuple[str, str], float] = {}
        self._suppressed: dict[tuple[str, str], int] = {}

    def admit(self, event: str, error_type: str, now_s: float) -> int | None:
        """How many lines were suppressed since the last one, or ``None`` if this one is suppressed as well."""
        what = (event, error_type)
        if now_s < self._next_s.get(what, 0.0):
            self._suppressed[what] = self._suppressed.get(what, 0) + 1
            return None
        self._next_s[what] = now_s + LIMIT_S
        return self._suppressed.pop(what, 0)


_LIMIT = RateLimit()


class EventLog:
    """Writes events of one component, with the fields bound to it."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> "EventLog":
        """The same logger with more fields on every line."""
        return EventLog(self._logger, {**self._fields, **fields})

    @property
    def tells_decisions(self) -> bool:
        """Whether ``debug`` writes anything, for lines whose fields are work to make."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: Event, **fields: Any) -> None:
        """A decision."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, fields)

    def info(self, event: Event, **fields: Any) -> None:
        """A change of state."""
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, fields)

    def warning(self, event: Event, **fields: Any) -> None:
        """What docs/operations.md 8 asks to be told."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, fields)

    def error(self, event: Event, **fields: Any) -> None:
        """Someone must look."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, fields)

    def critical(self, event: Event, **fields: Any) -> None:
        """An invariant broke."""
        self._emit(logging.CRITICAL, event, fields)

    def _emit(self, level: int, event: Event, fields: dict[str, Any]) -> None:
        line = {"event": event.value, **self._fields, **fields}
        error = line.get("error")
        if isinstance(error, BaseException):
            line["error"] = str(error) or type(error).__name__
            line.setdefault("error_type", error_type_of(error).value)
        if "error_type" in line:
            suppressed = _LIMIT.admit(event.value, str(line["error_type"]), time.monotonic())
            if suppressed is None:
                return
            if suppressed:
                line["suppressed"] = suppressed
        name = logging.getLevelName(level).lower()
        self._logger.log(level, line, exc_info=line.get("exc_info"), extra={"_logger": self._logger, "_name": name})


def get_logger(component: str, **fields: Any) -> EventLog:
    """The logger of a component, for example ``get_logger("gc")``.

    Fields given to a call are values, or ``error=`` an exception, which is written as its text and its type; keys of
    rows are given as ``bytes`` and are shortened when they are written.
    """
    return EventLog(_ROOT.getChild(component), {"component": component, **fields})
