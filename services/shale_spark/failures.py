"""What went wrong in Spark, in one line: its exceptions carry whole tracebacks of other processes as their text."""

import re

from shale.errors import CorruptionError, ShaleError, UnavailableError
from shale_spark.task_errors import error_class

_RAISED = re.compile(r"^(?:Caused by: |\[[A-Z_]+\] [^:\n]+: )?((?:\w+\.)*)(\w+): (.+)$", re.MULTILINE)
"""How Python and Java end a traceback, at the beginning of a line; what is indented is source code.  Errors of a data
source in the driver come without one, behind Spark's own name for them."""
_TRACEBACK = "Traceback (most recent call last):"


class SparkGaveUp(ShaleError):
    """Spark ended a job for a reason that is not ours."""


def translated(error: Exception) -> ShaleError:
    """The error of ours that a worker raised, if one is behind it; else what Python or Spark said first."""
    if isinstance(error, ShaleError):
        return error
    text = str(error)
    for package, name, message in _RAISED.findall(text):
        cls = error_class(package.rstrip("."), name)
        if cls is not None:
            return _from_message(cls, message)
    if type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionError):
        reason = _first_line(text) or type(error).__name__
        return UnavailableError(f"Spark's driver is gone or does not answer: {reason}")
    return SparkGaveUp(_reason(text) or type(error).__name__)


def _from_message(cls: type[ShaleError], message: str) -> ShaleError:
    """An error of this class.  Only its message travelled, and some classes make theirs of something else."""
    if issubclass(cls, CorruptionError):
        return CorruptionError(message)
    found = cls.__new__(cls, message)
    found.args = (message,)
    return found


def _reason(text: str) -> str:
    """The last line of the first traceback, which is the exception of a worker, or else the first line."""
    head, traceback, rest = text.partition(_TRACEBACK)
    if not traceback:
        return _first_line(head)
    raised = _RAISED.search(rest)
    return raised[0].strip() if raised is not None else _first_line(head)


def _first_line(text: str) -> str:
    """The first line that says something.  Where Java raised, py4j's own remark stands above it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[1].startswith(": "):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else ""
