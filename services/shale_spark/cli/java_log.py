"""Where Java's chatter goes: into a file beside the command, so that its own lines stay readable."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

_STDERR = 2


@dataclass(slots=True)
class JavaLog:
    """The file that Java's stderr goes to.  Spark writes there why a task failed, in full."""

    path: Path
    _ours: int | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def make(cls) -> "JavaLog":
        """A new file."""
        handle, name = tempfile.mkstemp(prefix="shale-spark-", suffix=".log")
        os.close(handle)
        return cls(Path(name))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Processes that are started inside have the file as their stderr, for as long as they live."""
        sys.stderr.flush()
        self._ours = os.dup(_STDERR)
        with self.path.open("ab") as file:
            os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            self.give_back()

    def give_back(self) -> None:
        """End ``taken``, in any thread: who gives up while Java starts has a line to say."""
        with self._lock:
            if self._ours is None:
                return
            sys.stderr.flush()
            os.dup2(self._ours, _STDERR)
            os.close(self._ours)
            self._ours = None

    def remove(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)
