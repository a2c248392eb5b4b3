"""``python -m shale_reader`` and ``shale reader``."""

import sys
from functools import partial

from shale.service.daemon import run_daemon
from shale.service.exit_process import exit_process
from shale_reader.app import run_reader
from shale_reader.settings import ReaderSettings

main = partial(run_daemon, ReaderSettings, run_reader)

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
