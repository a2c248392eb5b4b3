"""One Spark session for all tests of this folder; they run in one process, one after the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shale.errors import InvalidRequestError
from shale_spark.prerequisites import JavaHome, require_java
from shale_spark.session import spark_session

HERE = Path(__file__).parent
CONF = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.showConsoleProgress": "false",
    # Short programs: optimising compilers and parallel collectors cost more than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.daemon.module": "tests.integration.spark.worker_daemon",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """A Java process for every test process would overload the machine, and takes ten seconds to start.

    Later than here, when all tests are collected, is too late: pytest-xdist has looked for groups by then.
    """
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("spark"))
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def java() -> JavaHome:
    """Return the path of Java; skip the test without one."""
    try:
        return require_java()
    except InvalidRequestError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: JavaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and four attempts at each task."""
    folder = tmp_path_factory.mktemp("spark")
    places = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    session = spark_session(master="local[2,4]", app_name="tests", conf=CONF | places)
    try:
        yield session
    finally:
        session.stop()
