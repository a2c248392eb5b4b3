"""Delta and Iceberg with their real packages, where they are installed.

``SHALE_SPARK_JARS`` names a folder whose ``jars`` Spark has filled: it was started with ``spark.jars.ivy`` set to the
folder, and ``spark.jars.packages`` to the packages for this Spark (docs/how-to/spark-read.md).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from shale_spark.prerequisites import JavaHome
from tests.integration.spark.export.lake_process import COUNT
from tests.paths import PYTHONPATH

JARS = Path(os.environ.get("SHALE_SPARK_JARS", str(Path.home() / ".cache/shale-spark"))) / "jars"
SPARK = ".".join(pyspark.__version__.split(".")[:2])
NAMES = {
    "delta": f"io.delta_delta-spark_{SPARK}_2.13-*.jar",
    "iceberg": f"org.apache.iceberg_iceberg-spark-runtime-{SPARK}_2.13-*.jar",
}
LIMIT_S = 240.0


@pytest.mark.soak
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_table_is_made_replaced_and_appended_to(format_: str, tmp_path: Path, java: JavaHome) -> None:
    if not [*JARS.glob(NAMES[format_])]:
        pytest.skip(f"{JARS} has no {NAMES[format_]}: it is not installed, or there is none for Spark {SPARK}")
    found = subprocess.run(
        [sys.executable, "-m", "tests.integration.spark.export.lake_process", format_, str(JARS), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        check=True,
    )
    assert json.loads(found.stdout) == {
        "0 append": COUNT,
        "1 error": ": the target exists: choose mode overwrite or append",
        "2 overwrite": COUNT,
        "3 append": COUNT,
        "found": [2 * COUNT, 2 * sum(range(COUNT))],
    }
