"""The Spark session: found or made, with the properties that Shale needs."""

import os
import sys
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from shale.service.spark_section import SparkSettings
from shale_spark.conf import LOOPBACK, properties, with_master, worker_python
from shale_spark.java import require_java
from shale_spark.source.data_source import register


def spark_session(
    settings: SparkSettings | None = None,
    *,
    app_name: str = "shale",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The active session, or a new one, which knows ``format("shale")``.  Blocks for seconds when one is made.

    Args:
        settings: the section ``spark``.
        app_name: what Spark's own page and logs call the application.
        master: wins over the settings and the properties.
        conf: Spark properties; they win over the settings.

    Raises:
        InvalidRequestError: there is no Java that Spark could use, and names the command that installs one; or the
            master is none.
    """
    current = current_session()
    session = current if current is not None else _new_session(settings, app_name, master, conf or {})
    register(session)
    return session


def current_session() -> SparkSession | None:
    """The session of this thread or, in a thread that never had one, of this process."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _new_session(
    settings: SparkSettings | None, app_name: str, master: str | None, conf: Mapping[str, str]
) -> SparkSession:
    settings = with_master(settings if settings is not None else SparkSettings(), os.environ, master=master, more=conf)
    builder = SparkSession.builder.appName(app_name)
    for name, value in properties(settings, conf).items():
        builder = builder.config(name, value)
    if settings.is_remote:
        assert settings.master is not None
        return builder.remote(settings.master).getOrCreate()
    _prepare_environment(settings)
    if settings.master is not None:
        builder = builder.master(settings.master)
    return builder.getOrCreate()


def _prepare_environment(settings: SparkSettings) -> None:
    """Say to Spark's launcher, which only looks at the environment, which Java and which Python it shall take."""
    os.environ["JAVA_HOME"] = str(require_java().path)
    if settings.is_local:
        # Else Spark looks the name of this machine up, and says at length what it found.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    python = worker_python(settings, own=sys.executable)
    if python is not None:
        os.environ.setdefault("PYSPARK_PYTHON", python)
