"""``python -m shale_gc`` and ``shale gc``."""

import sys
from functools import partial

from shale.service.daemon import run_daemon
from shale.service.exit_process import exit_process
from shale_gc.app import collect
from shale_gc.settings import GcSettings

main = partial(run_daemon, GcSettings, collect)

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
