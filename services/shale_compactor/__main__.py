"""``python -m shale_compactor`` and ``shale compactor``."""

import sys
from collections.abc import Sequence

from shale.service.daemon import run_daemon
from shale.service.leaving import leave
from shale_compactor.app import compact
from shale_compactor.settings import CompactorSettings


def main(argv: Sequence[str]) -> int:
    """Run the compactor until it is told to stop; returns the exit code."""
    return run_daemon(CompactorSettings, compact, argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
