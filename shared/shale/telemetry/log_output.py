"""The log output of daemons: JSON lines or a coloured console on stderr (docs/reference/logs.md).

Records of other libraries pass through the same formatter, so that a log file has one form.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shale.core.bytes_like import BytesLike
from shale.core.url_secrets import HIDDEN, without_url_secrets
from shale.telemetry.key_format import format_key
from shale.telemetry.printable import printable
from shale.telemetry.recent_events import RECENT_EVENTS

_SECRET_NAME = re.compile(r"secret|token|password|authorization|credential|signature", re.IGNORECASE)
AUDIT_COMPONENT = "audit"
"""The logger of the audit log, which writes at every level of the log."""
_OF_SEVERAL_LINES = frozenset(("exception", "stack"))
_FIRST = ("ts", "level", "event", "component", "db")


class KeyFormatter:
    """Replaces bytes by ``format_key``: keys of rows are the only bytes that are logged."""

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def __call__(self, _logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        """Return the line with every ``bytes`` as text."""
        for name, value in line.items():
            if isinstance(value, BytesLike):
                line[name] = format_key(bytes(value), full=self._full)
        return line


def redact(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Hide fields with names of secrets, and secrets in URLs, also in texts of exceptions."""
    for name, value in line.items():
        line[name] = HIDDEN if _SECRET_NAME.search(name) else _without_secrets(value)
    return line


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return without_url_secrets(value)
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    if isinstance(value, MutableMapping):
        return {
            name: HIDDEN if _SECRET_NAME.search(str(name)) else _without_secrets(item) for name, item in value.items()
        }
    return value


def _in_order(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    return {**{name: line[name] for name in _FIRST if name in line}, **line}


def _component_of_others(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    record = line.get("_record")
    if "component" not in line and isinstance(record, logging.LogRecord):
        line["component"] = record.name
    return line


def _render_json(_logger: WrappedLogger, _method: str, line: EventDict) -> str:
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _escape_controls(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Escape what a terminal would obey: paths of requests and other texts of strangers are in lines."""
    for name, value in line.items():
        if isinstance(value, str):
            parts = value.split("\n") if name in _OF_SEVERAL_LINES else [value]
            line[name] = "\n".join(map(printable, parts))
    return line


def configure_logging(
    *, level: str = "info", format_: str = "auto", full_keys: bool = False, stream: TextIO | None = None
) -> logging.Handler:
    """Send every record of the process to ``stream`` (stderr); ``format_`` is ``auto``, ``json`` or ``console``.

    Returns:
        The handler, which replaces all others of the root logger.
    """
    out = stream if stream is not None else sys.stderr
    as_json = format_ == "json" or (format_ == "auto" and not out.isatty())
    colored = structlog.dev.ConsoleRenderer(
        colors=out.isatty(), timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(json_formatter(full_keys=full_keys) if as_json else _console_formatter(colored, full_keys))
    RECENT_EVENTS.setFormatter(json_formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler, RECENT_EVENTS]
    root.setLevel(logging.WARNING)
    set_level(level)
    logging.getLogger(f"shale.{AUDIT_COMPONENT}").setLevel(logging.INFO)
    return handler


def json_formatter(*, full_keys: bool = False) -> logging.Formatter:
    """Return the formatter of JSON lines."""
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    render_exception = structlog.processors.ExceptionRenderer(tracebacks)
    return _formatter(render_exception, [_in_order, _render_json], full_keys=full_keys)


def _console_formatter(renderer: Processor, full_keys: bool) -> logging.Formatter:
    """Return the formatter of a console, whose tracebacks are Python's: those of rich show local variables."""
    return _formatter(structlog.processors.ExceptionRenderer(), [_escape_controls, renderer], full_keys=full_keys)


def _formatter(render_exception: Processor, last: list[Processor], *, full_keys: bool) -> logging.Formatter:
    """Return a formatter of all records; ``last`` renders the line, after all secrets are hidden."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.PositionalArgumentsFormatter()],
        processors=[
            *shared,
            _component_of_others,
            KeyFormatter(full=full_keys),
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            render_exception,
            redact,
            *last,
        ],
    )


def set_level(level: str) -> None:
    """Set the level of Shale's lines; other libraries log from WARNING on, or from a higher level."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger("shale").setLevel(number)
    logging.getLogger().setLevel(max(number, logging.WARNING))


def level_name() -> str:
    """Return the level of Shale's lines."""
    return logging.getLevelName(logging.getLogger("shale").getEffectiveLevel()).lower()
