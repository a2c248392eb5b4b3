"""Which Spark properties Shale sets by itself, as a pure function of the settings."""

from collections.abc import Mapping

from shale.service.spark_section import SparkSettings

ENVIRONMENT = "environment"
"""The directory in which executors unpack the archive."""

_ALWAYS = {
    "spark.python.worker.reuse": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def properties(settings: SparkSettings, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The properties of a session; what the settings and then the caller say wins."""
    chosen = dict(_ALWAYS)
    if not settings.is_remote:
        # Spark's own page listens on every address; who wants it says so, and where.
        chosen["spark.ui.enabled"] = "false"
    if settings.is_local:
        chosen |= _LOOPBACK
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
