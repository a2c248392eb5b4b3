"""A file of its own for the audit log; the lines also stay in the log of the process."""

import logging
import os
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

from shale.errors import InvalidRequestError
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.log_output import AUDIT_COMPONENT, json_formatter

log = get_logger("service")

_MODE = 0o600


class AuditFile(WatchedFileHandler):
    """Appends JSON lines, and opens the file again after another program has renamed or removed it."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8")
        self.setFormatter(json_formatter())

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - as ``Handler`` has it
        """Log that a line could not be written, for example because the disk is full."""
        error = sys.exc_info()[1]
        log.error(Event.AUDIT_WRITE_FAILED, file=self.baseFilename, error=error)


def _open_private(path: str, flags: int) -> int:
    opened = os.open(path, flags, _MODE)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        with suppress(PermissionError):  # a file of another user, who decides on its mode
            os.fchmod(opened, _MODE)
    return opened


def open_audit_file(file: Path) -> AuditFile:
    """Append the audit log of this process to a file, which is created if it is missing.

    Raises:
        InvalidRequestError: the file cannot be opened; names the setting.
    """
    try:
        handler = AuditFile(file)
    except OSError as error:
        raise InvalidRequestError(f"audit.file: cannot append to {file}: {error.strerror or error}") from error
    logging.getLogger(f"shale.{AUDIT_COMPONENT}").addHandler(handler)
    return handler
