"""``python -m shale_reader`` and ``shale reader``."""

import sys
from collections.abc import Sequence

from shale.service.daemon import run_daemon
from shale.service.leaving import leave
from shale_reader.app import run_reader
from shale_reader.settings import ReaderSettings


def main(argv: Sequence[str]) -> int:
    """Run the reader; returns the exit code."""
    return run_daemon(ReaderSettings, run_reader, argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
