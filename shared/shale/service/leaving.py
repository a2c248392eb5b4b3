"""The end of a process that has said everything."""

import gc
import os
import sys
import threading
from typing import NoReturn


def end_soon() -> None:
    """Spare the end of the process a look for cycles among all that it has imported: two tenths of a second."""
    gc.freeze()


def leave(code: int) -> NoReturn:
    """End with this exit code, now.

    A request to a store that does not answer occupies its thread until it times out, half a minute later, and the
    interpreter waits for threads.  A daemon whose shutdown deadline has passed must not.
    """
    end_soon()
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
