"""``spark.speculation`` on a real cluster: a slow task is copied, and one result is committed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.soak.spark_cluster import Cluster
from tests.paths import PYTHONPATH

LIMIT_S = 240.0
ORPHANS_MAX = 2
"""What the slow attempt was writing when it heard that the range was not its own, and one that was under way to it."""


@pytest.mark.soak
def test_a_copy_of_a_slow_task_takes_its_range_over(tmp_path: Path) -> None:
    """Workers have hosts of their own: Spark starts no copy on the host of the original."""
    folder = tmp_path / "store"
    folder.mkdir()
    with Cluster(tmp_path) as cluster:
        cluster.start_worker("first")
        cluster.start_worker("second", host="127.0.0.2")
        found = subprocess.run(
            [sys.executable, "-m", "tests.integration.soak.speculation", cluster.url, str(folder)],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
            check=True,
        )
    seen = json.loads(found.stdout)
    assert seen["attempts"] == 2, "the copy, since nothing may fail"
    assert seen["same"]
    assert seen["once"]
    assert 0 <= seen["orphans"] <= ORPHANS_MAX
