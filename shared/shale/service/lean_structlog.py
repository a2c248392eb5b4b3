"""structlog as a daemon imports it: without rich, which colours nothing but the tracebacks of a console.

rich and what it imports are 90 modules and 5 MB.  A program that embeds the library imports structlog as it likes: only
daemons import this module, before any other that imports structlog.
"""

import importlib
import sys
from types import ModuleType


def _import_structlog() -> ModuleType:
    if "rich" in sys.modules:
        return importlib.import_module("structlog")
    # structlog takes a failing import for a package that is not installed.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


_STRUCTLOG = _import_structlog()


def bind_to_all_lines(**fields: str) -> None:
    """Add fields to every line that this task and its children log."""
    _STRUCTLOG.contextvars.bind_contextvars(**fields)
