"""``python -m shale_compactor.worker`` and ``shale worker``."""

import sys
from collections.abc import Sequence

from shale.service.daemon import run_daemon
from shale.service.leaving import leave
from shale_compactor.worker.app import work
from shale_compactor.worker.settings import WorkerSettings


def main(argv: Sequence[str]) -> int:
    """Run a worker until it is told to stop; returns the exit code."""
    return run_daemon(WorkerSettings, work, argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
