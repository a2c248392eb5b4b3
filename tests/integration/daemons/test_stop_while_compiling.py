"""A stop does not wait for kernels that are compiled for the first time on a machine, which takes a minute or more."""

import signal
from pathlib import Path

from tests.integration.daemons.running import running


def test_a_worker_that_compiles_its_kernels_stops_at_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    with running("shale_writer", "--url", url, "--port", "0", log=tmp_path / "writer") as writer:
        writer.wait_for("daemon.ready")
        assert writer.stop() == 0
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "SHALE_SHUTDOWN__DEADLINE": "6s"}
    with running("shale_compactor.worker", "--url", url, log=tmp_path / "worker", env=env, is_fresh=True) as worker:
        worker.wait_for("daemon.ready")
        assert worker.stop(signal.SIGTERM, timeout_s=30.0) == 0
