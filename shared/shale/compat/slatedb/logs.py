"""``init_logging``: Shale's log lines for a program's callback, or on standard error."""

import logging
from typing import Any

from shale.compat.slatedb.errors import invalid
from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.types.enums import LogLevel
from shale.compat.slatedb.types.records import LogRecord

_LEVELS = {
    LogLevel.OFF: logging.CRITICAL + 1,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARN: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: logging.DEBUG,
}


class LogCallback:
    """Receives log lines; subclass it.  Calls may come from any thread."""

    def log(self, record: LogRecord) -> None:
        """Take one line."""
        raise NotImplementedError


class LogCallbackImpl(Handle, LogCallback):
    """A log callback of the binding itself; it gives out none."""


class _Handler(logging.Handler):
    def __init__(self, callback: LogCallback) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        self._callback.log(
            LogRecord(
                level=_level_of(record.levelno),
                target=record.name,
                message=_message(record),
                module_path=record.module,
                file=record.pathname,
                line=record.lineno,
            )
        )


def init_logging(level: LogLevel, callback: LogCallback | None) -> None:
    """Send log lines to a callback, or to standard error; works once in a process.

    Raises:
        Error: it was called before.
    """
    logger = logging.getLogger("shale")
    if any(getattr(handler, "is_of_compat", False) for handler in logger.handlers):
        raise invalid("logging already initialized")
    handler: logging.Handler = _Handler(callback) if callback is not None else logging.StreamHandler()
    if callback is None:
        handler.setFormatter(_Lines())
    handler.is_of_compat = True  # type: ignore[attr-defined]
    handler.setLevel(_LEVELS[level])
    logger.setLevel(_LEVELS[level])
    logger.addHandler(handler)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{self.formatTime(record)} {record.levelname} {record.name}: {_message(record)}"


def _message(record: logging.LogRecord) -> str:
    """Return an event with its fields as one line."""
    line: Any = record.msg
    if not isinstance(line, dict):
        return record.getMessage()
    fields = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("event", "component"))
    return f"{line.get('event')} {fields}".rstrip()


def _level_of(number: int) -> LogLevel:
    if number >= logging.ERROR:
        return LogLevel.ERROR
    if number >= logging.WARNING:
        return LogLevel.WARN
    return LogLevel.INFO if number >= logging.INFO else LogLevel.DEBUG
