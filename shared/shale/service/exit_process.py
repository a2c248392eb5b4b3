"""Ends the process without waiting for threads."""

import gc
import os
import sys
import threading
from typing import NoReturn


def freeze_gc() -> None:
    """Exclude all objects from the collection that runs when the process exits; it takes 0.2 seconds."""
    gc.freeze()


def exit_process(code: int) -> NoReturn:
    """Exit with this code now.

    The interpreter waits for running threads, and a request to a store that does not respond occupies its thread until
    it times out, half a minute later.  A daemon must not wait for that after its shutdown deadline.
    """
    freeze_gc()
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
