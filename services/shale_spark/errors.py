"""Errors of Spark jobs: between processes, and as one line.

Spark retries a task that raises, and then turns the exception into text inside a Java exception, with whole tracebacks
of other processes.  An error that a task knows to be final comes back in its result instead (``encode_error``), and the
driver raises it with its own class.  Other errors are found in Spark's text (``shale_error_of``).
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack

from shale.errors import CorruptionError, ShaleError, UnavailableError

_RAISED = re.compile(r"^(?:Caused by: |\[[A-Z_]+\] [^:\n]+: )?((?:\w+\.)*)(\w+): (.+)$", re.MULTILINE)
"""How Python and Java end a traceback, at the beginning of a line; indented lines are source code.  Errors of a data
source in the driver have no traceback but the name that Spark gives them.
"""
_TRACEBACK = "Traceback (most recent call last):"


class SparkError(ShaleError):
    """Spark ended a job for a reason outside Shale."""


def shale_error_of(error: Exception) -> ShaleError:
    """Return the Shale error that a worker raised, if there is one; else the first error of Python or Spark."""
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
    return SparkError(_reason(text) or type(error).__name__)


def _from_message(cls: type[ShaleError], message: str) -> ShaleError:
    """Return an error of this class with only its message, because some classes build theirs from other arguments."""
    if issubclass(cls, CorruptionError):
        return CorruptionError(message)
    found = cls.__new__(cls, message)
    found.args = (message,)
    return found


def _reason(text: str) -> str:
    """Return the last line of the first traceback, which is the exception of a worker, or else the first line."""
    head, traceback, rest = text.partition(_TRACEBACK)
    if not traceback:
        return _first_line(head)
    raised = _RAISED.search(rest)
    return raised[0].strip() if raised is not None else _first_line(head)


def _first_line(text: str) -> str:
    """Return the first line with content.  py4j puts its own remark above the exception of Java."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[1].startswith(": "):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else ""


_PLAIN = (str, bytes, int, float, bool, type(None))


def encode_error(error: ShaleError) -> bytes:
    """Encode the class, message and plain attributes of an error."""
    classes = [(cls.__module__, cls.__qualname__) for cls in type(error).__mro__ if issubclass(cls, ShaleError)]
    state = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in vars(error).items()}
    message = error.args[0] if error.args else ""
    return msgpack.packb({"classes": classes, "message": str(message), "state": state})  # type: ignore[no-any-return]


def decode_error(data: bytes) -> ShaleError:
    """Return the error again; of a class that cannot be imported here, its nearest ancestor that can.

    Raises:
        CorruptionError: the bytes are no error, or that of another release.
    """
    try:
        fields = msgpack.unpackb(data)
        if not isinstance(fields["message"], str):
            raise TypeError("its message is no text")
        found = [cls for module, name in fields["classes"] if (cls := error_class(module, name)) is not None]
        decoded: ShaleError = found[0].__new__(found[0], fields["message"])
        for name, value in fields["state"].items():
            setattr(decoded, name, value)
    except (ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException) as error:
        raise CorruptionError(f"the error of a task is malformed: {error}") from error
    return decoded


def error_class(module: str, name: str) -> Any:
    """Return the Shale error class of this name, or ``None``."""
    if not module.startswith("shale"):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, ShaleError) else None


_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def message_only() -> Iterator[None]:
    """Report a ShaleError that ends this worker by its message alone; other errors keep their traceback.

    Outside Spark's workers this does nothing.
    """
    try:
        yield
    except ShaleError:
        if _is_worker():
            os.environ[_HIDE] = "1"
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
