"""The settings of ``shale spark …``, and the Spark properties that follow from them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from shale.errors import InvalidRequestError
from shale.service.config.access.exposed_ports import ListeningPort
from shale.service.config.settings import DaemonSettings
from shale.service.config.spark_section import SparkSection, SparkSettings, parse_master

ENVIRONMENT = "environment"
"""The directory into which executors unpack the archive."""

LOCAL = "local[*]"
_SPARK_VARIABLES = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
_COMMON_PROPERTIES = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_CLUSTER_PROPERTIES = {
    "spark.python.worker.reuse": "true",
    # Spark's web interface listens on every address, so it is off unless configured.
    "spark.ui.enabled": "false",
}
"""Properties of a cluster that this process starts; a Connect server has its own."""
LOOPBACK = "127.0.0.1"
_LOCAL_PROPERTIES = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def with_master(
    settings: SparkSettings,
    environ: Mapping[str, str],
    *,
    master: str | None = None,
    more: Mapping[str, str] | None = None,
) -> SparkSettings:
    """Return the settings with the master to use; by default all cores of this machine.

    Where Spark has its own configuration or started this program, the master may be set there; then none is set here.

    Args:
        settings: the section ``spark``.
        environ: the environment of this process.
        master: the caller's choice; wins over the settings.
        more: properties of the caller; ``spark.master`` among them wins over the settings.

    Raises:
        InvalidRequestError: no cluster has such a URL; Spark would report it after seconds, in a Java log.
    """
    said = master or (more or {}).get("spark.master")
    named = said or settings.master or dict(settings.conf).get("spark.master")
    if named is None and not any(name in environ for name in _SPARK_VARIABLES):
        named = LOCAL
    try:
        return replace(settings, master=parse_master(named))
    except ValueError as error:
        raise InvalidRequestError(f"spark.master: {error}") from None


def properties(settings: SparkSettings, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the properties of a session; those of the settings and then those of the caller win."""
    chosen = dict(_COMMON_PROPERTIES)
    if not settings.is_remote:
        chosen |= _CLUSTER_PROPERTIES
    if settings.is_local:
        chosen |= _LOCAL_PROPERTIES
    elif settings.archive is not None:
        chosen["spark.archives"] = f"{settings.archive}#{ENVIRONMENT}"
    return chosen | dict(settings.conf) | dict(more or {})


def worker_python(settings: SparkSettings, *, own: str) -> str | None:
    """Return the interpreter of Python workers, or ``None`` where the executors' image chooses.

    Args:
        settings: the section ``spark``.
        own: the interpreter of this process, which executors on this machine or an identical one have too.
    """
    if settings.archive is not None and not settings.is_local:
        return f"./{ENVIRONMENT}/bin/python"
    on_image = settings.master is not None and settings.master.startswith("k8s://")
    return None if on_image or settings.is_remote else own


__all__ = ["SparkCommandSettings", "SparkSettings"]


class SparkCommandSettings(DaemonSettings):
    """A command that runs Spark jobs on a database."""

    ROLE: ClassVar[str] = "cli"

    spark: SparkSection = SparkSection()

    def listening_ports(self) -> list[ListeningPort]:
        """A command opens no port, also in the container of a daemon, which does."""
        return []
