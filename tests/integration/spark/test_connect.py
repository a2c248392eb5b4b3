"""All operations over Spark Connect, from a program without Java."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shale_spark.prerequisites import JavaHome
from tests.integration.soak.spark_cluster import SPARK_HOME
from tests.integration.spark.connect_client import COUNT
from tests.paths import PYTHONPATH
from tests.ports import free_port

START_S = 90.0
CLIENT_S = 240.0


@contextmanager
def connect_server(folder: Path, java: JavaHome) -> Iterator[str]:
    """Yield the URL of a server with two cores, which ends with the context."""
    port = free_port()
    properties = {
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(SPARK_HOME / "bin/spark-class"), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.path),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHONPATH,
    }
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"], stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
    try:
        deadline = time.monotonic() + START_S
        while re.search("Spark Connect server started", log.read_text()) is None:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.mark.soak
def test_a_program_without_java_does_everything(tmp_path: Path, java: JavaHome) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs: pip install 'pyspark[connect]'")
    with connect_server(tmp_path, java) as url:
        found = subprocess.run(
            [sys.executable, "-m", "tests.integration.spark.connect_client", url, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "JAVA_HOME": "/nonexistent"},
            stdout=subprocess.PIPE,
            timeout=CLIENT_S,
            check=True,
        )
    assert json.loads(found.stdout) == {
        "loaded": COUNT,
        "appended": 2,
        "read": [COUNT, sum(range(COUNT))],
        "pushed down": 1,
        "exported": COUNT,
        "refused": f"{tmp_path}/out: the target exists: choose mode overwrite or append",
        "scrubbed": [True, 2 * COUNT],
        "built": COUNT,
        "followed": 10,
    }
