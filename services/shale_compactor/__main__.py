"""``python -m shale_compactor`` and ``shale compactor``."""

import sys
from functools import partial

from shale.service.daemon import run_daemon
from shale.service.exit_process import exit_process
from shale_compactor.app import compact
from shale_compactor.settings import CompactorSettings

main = partial(run_daemon, CompactorSettings, compact)

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
