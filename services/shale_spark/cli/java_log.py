"""Redirection of Java's output into a file, so that the command's own lines stay readable."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from threading import Lock

from shale.core.lazy_dataclass import dataclass

_STDERR = 2


@dataclass(slots=True)
class JavaLog:
    """The file that gets Java's stderr.  Spark writes the full reason of a failed task there."""

    path: Path
    _ours: int | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def create(cls) -> "JavaLog":
        """Create a new file."""
        handle, name = tempfile.mkstemp(prefix="shale-spark-", suffix=".log")
        os.close(handle)
        return cls(Path(name))

    @contextmanager
    def redirected(self) -> Iterator[None]:
        """Give processes that are started inside the block the file as their stderr, for as long as they live."""
        sys.stderr.flush()
        self._ours = os.dup(_STDERR)
        with self.path.open("ab") as file:
            os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """End ``redirected``, from any thread: a command that is cancelled while Java starts prints its error."""
        with self._lock:
            if self._ours is None:
                return
            sys.stderr.flush()
            os.dup2(self._ours, _STDERR)
            os.close(self._ours)
            self._ours = None

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
