"""The settings of ``shale spark …``: those that all commands read, and the section ``spark``."""

from typing import ClassVar

from shale.service.settings import DaemonSettings
from shale.service.spark_section import SparkSection, SparkSettings

__all__ = ["SparkCommandSettings", "SparkSettings"]


class SparkCommandSettings(DaemonSettings):
    """A command that runs Spark jobs on a database."""

    ROLE: ClassVar[str] = "cli"

    spark: SparkSection = SparkSection()
