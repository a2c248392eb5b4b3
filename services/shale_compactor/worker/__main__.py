"""``python -m shale_compactor.worker`` and ``shale worker``."""

import sys
from functools import partial

from shale.service.daemon import run_daemon
from shale.service.exit_process import exit_process
from shale_compactor.worker.app import work
from shale_compactor.worker.settings import WorkerSettings

main = partial(run_daemon, WorkerSettings, work)

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
