"""``python -m shale_writer`` and ``shale writer``."""

import sys
from functools import partial

from shale.service.daemon import run_daemon
from shale.service.exit_process import exit_process
from shale_writer.app import run_writer
from shale_writer.settings import WriterSettings

main = partial(run_daemon, WriterSettings, run_writer)

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
