"""Which Spark properties Shale sets by itself, as a pure function of the settings."""

from collections.abc import Mapping
from dataclasses import replace

from shale.errors import InvalidRequestError
from shale.service.spark_section import SparkSettings, parse_master

ENVIRONMENT = "environment"
"""The directory in which executors unpack the archive."""

LOCAL = "local[*]"
_CONFIGURED_BY = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
_ALWAYS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_OF_A_CLUSTER = {
    "spark.python.worker.reuse": "true",
    # Spark's own page listens on every address; who wants it says so, and where.
    "spark.ui.enabled": "false",
}
"""Of no use over Connect, where the server has started it."""
LOOPBACK = "127.0.0.1"
_AT_HOME = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def with_master(
    settings: SparkSettings,
    environ: Mapping[str, str],
    *,
    master: str | None = None,
    more: Mapping[str, str] | None = None,
) -> SparkSettings:
    """The settings with the master that is meant: all cores of this machine where nobody says anything.

    Where Spark has a configuration of its own, or has started this program, that may name one; then none is named here.

    Args:
        master, more: what the caller says, by name or among its properties; wins over the settings.

    Raises:
        InvalidRequestError: no cluster is called like that; Spark would say so after seconds, in a log of Java's.
    """
    said = master or (more or {}).get("spark.master")
    named = said or settings.master or dict(settings.conf).get("spark.master")
    if named is None and not any(name in environ for name in _CONFIGURED_BY):
        named = LOCAL
    try:
        return replace(settings, master=parse_master(named))
    except ValueError as error:
        raise InvalidRequestError(f"spark.master: {error}") from None


def properties(settings: SparkSettings, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The properties of a session; what the settings and then the caller say wins."""
    chosen = dict(_ALWAYS)
    if not settings.is_remote:
        chosen |= _OF_A_CLUSTER
    if settings.is_local:
        chosen |= _AT_HOME
    elif settings.archive is not None:
        chosen["spark.archives"] = f"{settings.archive}#{ENVIRONMENT}"
    return chosen | dict(settings.conf) | dict(more or {})


def worker_python(settings: SparkSettings, *, own: str) -> str | None:
    """The interpreter of Python workers, or ``None`` where the executors' image chooses.

    Args:
        own: the interpreter of this process, which executors on this machine, or on machines set up alike, have too.
    """
    if settings.archive is not None and not settings.is_local:
        return f"./{ENVIRONMENT}/bin/python"
    on_image = settings.master is not None and settings.master.startswith("k8s://")
    return None if on_image or settings.is_remote else own
