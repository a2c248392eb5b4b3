"""``python -m shale_writer`` and ``shale writer``."""

import sys
from collections.abc import Sequence

from shale.service.daemon import run_daemon
from shale.service.leaving import leave
from shale_writer.app import run_writer
from shale_writer.settings import WriterSettings


def main(argv: Sequence[str]) -> int:
    """Run the writer; returns the exit code."""
    return run_daemon(WriterSettings, run_writer, argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
