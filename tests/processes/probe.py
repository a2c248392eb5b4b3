"""Prints its properties as a line of JSON, and ends as its first argument demands."""

import json
import os
import signal
import sys
import threading
import warnings
from pathlib import Path


def main() -> None:
    """The first argument: a number to exit with, ``raise``, ``warn`` or ``die``."""
    how = sys.argv[1]
    told = {
        "arguments": sys.argv[1:],
        "name": __name__,
        "folder": str(Path.cwd()),
        "first_path": sys.path[0],
        "environment": {name: value for name, value in os.environ.items() if name not in ("_", "LC_CTYPE")},
        "stdin": sys.stdin.read(),
        "threads": threading.active_count(),
        "open": sorted(int(each.name) for each in Path("/dev/fd").iterdir() if each.exists()),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "wakeup": signal.set_wakeup_fd(-1),
    }
    print(json.dumps(told))
    if how == "raise":
        raise ValueError("told to")
    if how == "warn":
        warnings.warn("told to", stacklevel=1)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how.isdigit():
        sys.exit(int(how))
    sys.exit(how)


if __name__ == "__main__":
    main()
