"""The Spark session: the active one or a new one, with the properties that Shale needs."""

import os
import sys
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from shale.service.config.spark_section import SparkSettings
from shale_spark.prerequisites import require_java
from shale_spark.session_conf import LOOPBACK, properties, with_master, worker_python
from shale_spark.source.data_source import register


def spark_session(
    settings: SparkSettings | None = None,
    *,
    app_name: str = "shale",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active session, or a new one, with ``format("shale")`` registered.  A new one takes seconds.

    Args:
        settings: the section ``spark``.
        app_name: the name of the application in Spark's web interface and logs.
        master: wins over the settings and the properties.
        conf: Spark properties; they win over the settings.

    Raises:
        InvalidRequestError: there is no usable Java (names the command that installs one), or the master is invalid.
    """
    current = current_session()
    session = current if current is not None else _new_session(settings, app_name, master, conf or {})
    register(session)
    return session


def current_session() -> SparkSession | None:
    """Return the session of this thread or, in a thread that never had one, of this process."""
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
    """Set the Java and the Python for Spark's launcher, which reads only the environment."""
    os.environ["JAVA_HOME"] = str(require_java().path)
    if settings.is_local:
        # Without it Spark resolves the name of this machine and logs warnings about the result.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    python = worker_python(settings, own=sys.executable)
    if python is not None:
        os.environ.setdefault("PYSPARK_PYTHON", python)
