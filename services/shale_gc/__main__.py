"""``python -m shale_gc`` and ``shale gc``."""

import sys
from collections.abc import Sequence

from shale.service.daemon import run_daemon
from shale.service.leaving import leave
from shale_gc.app import collect
from shale_gc.settings import GcSettings


def main(argv: Sequence[str]) -> int:
    """Run the collector until it is told to stop; returns the exit code."""
    return run_daemon(GcSettings, collect, argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
