"""A standalone Spark cluster on the loopback: one master and workers that can be killed."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pyspark

from shale_spark.prerequisites import require_java
from tests.paths import PYTHONPATH
from tests.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 90.0


class Cluster:
    """Use as a context; every process has a log in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> "Cluster":
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._start("master", "master.Master", where, r"Starting Spark master at")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed([*self._processes]):
            self.kill(name)

    def start_worker(self, name: str, host: str = "127.0.0.1") -> None:
        """Start a worker with one core; return once the master knows it."""
        where = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "700m"]
        where += ["--work-dir", str(self._folder / f"{name}-work"), self.url]
        self._start(name, "worker.Worker", where, r"Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill a worker and all its executors with SIGKILL."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, what: str, arguments: list[str], says: str) -> None:
        log = self._folder / f"{name}-{time.monotonic_ns()}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(require_java().path),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "PYTHONPATH": PYTHONPATH,
        }
        with log.open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [SPARK_HOME / "bin/spark-class", f"org.apache.spark.deploy.{what}", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while re.search(says, log.read_text()) is None:
            assert self._processes[name].poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"{name} did not start:\n{log.read_text()}"
            time.sleep(0.1)
