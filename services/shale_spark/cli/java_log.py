"""Where Java's chatter goes: into a file beside the command, so that its own lines stay readable."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STDERR = 2


@dataclass(frozen=True, slots=True)
class JavaLog:
    """The file that Java's stderr goes to.  Spark writes there why a task failed, in full."""

    path: Path

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
        ours = os.dup(_STDERR)
        with self.path.open("ab") as file:
            os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(ours, _STDERR)
            os.close(ours)

    def remove(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)
