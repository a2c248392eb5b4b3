"""Runs a daemon with a wall clock that can be set: ``python -m tests.soak.stack.clock FILE MODULE ARGUMENTS``.

``FILE`` holds the offset in seconds.  Shale reads its clock in one place, ``shale.env.SystemClock``, which is replaced
before anything else is imported.  Monotonic time is left as it is: the kernel does not step it either.
"""

import runpy
import sys
import threading
import time
from pathlib import Path

INTERVAL_S = 0.2


class Offset:
    """The number in a file, read again and again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.seconds = 0.0
        self._pause = threading.Event()

    def read(self) -> None:
        """Read the file; while it is missing, the clock is right."""
        try:
            self.seconds = float(self._file.read_text() or 0)
        except (OSError, ValueError):
            self.seconds = 0.0

    def follow(self) -> None:
        """Read the file until the process ends."""
        while not self._pause.wait(INTERVAL_S):
            self.read()


def main() -> None:
    """Replace the clock and become the daemon."""
    from shale import env

    file, module, *arguments = sys.argv[1:]
    offset = Offset(Path(file))
    offset.read()
    threading.Thread(target=offset.follow, daemon=True).start()
    env.SystemClock.wall_s = staticmethod(lambda: time.time() + offset.seconds)  # type: ignore[method-assign]
    env.SystemClock.now_ms = lambda _clock: int((time.time() + offset.seconds) * 1000)  # type: ignore[method-assign]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
