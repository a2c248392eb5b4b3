"""Errors of ours on their way from a task to the driver.

Spark turns an exception of a task into text inside a Java exception, after it has tried the task again.  What a task
knows to be final comes back in its result instead, and is raised in the driver as what it was.
"""

import importlib
from typing import Any

import msgpack

from shale.errors import ShaleError

_PLAIN = (str, bytes, int, float, bool, type(None))


def encode_error(error: ShaleError) -> bytes:
    """Class, message and plain attributes of an error."""
    classes = [(cls.__module__, cls.__qualname__) for cls in type(error).__mro__ if issubclass(cls, ShaleError)]
    state = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in vars(error).items()}
    message = error.args[0] if error.args else ""
    return msgpack.packb({"classes": classes, "message": str(message), "state": state})  # type: ignore[no-any-return]


def decode_error(data: bytes) -> ShaleError:
    """The error again; of a class that cannot be imported here, its nearest ancestor that can."""
    fields = msgpack.unpackb(data)
    cls = next(found for module, name in fields["classes"] if (found := error_class(module, name)) is not None)
    error = cls.__new__(cls, fields["message"])
    assert isinstance(error, ShaleError)
    for name, value in fields["state"].items():
        setattr(error, name, value)
    return error


def error_class(module: str, name: str) -> Any:
    """The class of ours that has this name, or ``None``."""
    if not module.startswith("shale"):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, ShaleError) else None
