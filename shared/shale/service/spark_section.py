"""``spark``: where jobs that are large enough run on Spark, and how its session is made.

The section is shared by the processes that execute compactions and by ``shale spark …``, so that one file serves all.
Nothing here needs Spark.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer

from shale.service.sections import Bytes, Section

SPARK_MIN_BYTES = 8 * 1024**3

HIDDEN = "**********"
"""What stands for a secret wherever settings are shown."""
_SECRET_NAME = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)
"""Spark hides the same properties on its own page."""
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|[a-z0-9]+://.+", re.DOTALL)
_CONNECT_TOKEN = re.compile(r"(;token=)[^;]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How a session is made.  What is not said here is Spark's own configuration's to say.

    Args:
        master: ``local[2]``, ``spark://host:7077``, ``k8s://https://…``, or ``sc://host:15002`` for Spark Connect.
        conf: any Spark properties; they win over everything that Shale sets itself.
        ranges: key ranges of one compaction, each a task; by default as many as the cluster has cores.
        archive: a packed Python environment, a path or URL that every executor unpacks.
        event_host: the address at which executors reach the driver; by default Spark's own.
    """

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    ranges: int | None = None
    archive: str | None = None
    event_host: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether executors are threads of the driver."""
        return self.master is not None and (self.master == "local" or self.master.startswith("local["))

    @property
    def is_remote(self) -> bool:
        """Whether the session belongs to a Spark Connect server, so that no Java is needed here."""
        return self.master is not None and self.master.startswith("sc://")


def parse_master(value: str | None) -> str | None:
    """The master, if Spark could know one of this name: it would say so after seconds, in a log of Java's.

    Raises:
        ValueError: it could not.
    """
    if value is not None and not _MASTER.fullmatch(value):
        raise ValueError(f"{value!r} is none of local, local[2], spark://host:7077, k8s://https://…, sc://host, yarn")
    return value


def parse_conf(value: Any) -> Any:
    """Spark properties from a table of a file, nested or not, or from text with ``name=value`` lines.

    Raises:
        ValueError: neither.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = tomllib.loads(f"value = {value.strip()}")["value"]
        except ValueError as error:  # a number of thousands of digits is none of tomllib's own errors
            raise ValueError(f"is no table: {error}") from error
    if isinstance(value, str):
        return dict(_line(line.strip()) for line in value.splitlines() if line.strip())
    return dict(_flat(value)) if isinstance(value, Mapping) else value


def _line(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{line!r}: write name=value, one property a line")
    return name.strip(), value.strip()


def _flat(tree: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Properties by their whole names: TOML reads ``spark.executor.memory = "1g"`` as three tables."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value).lower() if isinstance(value, bool) else str(value)


Conf = Annotated[dict[str, str], BeforeValidator(parse_conf, json_schema_input_type=dict[str, Any] | str)]
"""Spark properties by name."""


class SparkSection(Section):
    """When and where Spark does the work; it needs the extra: ``pip install 'shale[spark]'``."""

    executor: Literal["auto", "local", "spark"] = Field(
        default="local", description="Who executes compactions: this process, Spark, or whoever suits the size."
    )
    spark_min_bytes: Bytes = Field(
        default=SPARK_MIN_BYTES, gt=0, description="auto: compactions with at least this much input go to Spark."
    )
    master: Annotated[str | None, AfterValidator(parse_master)] = Field(
        default=None,
        description="spark://…, k8s://…, local[n] or sc://…; none: what Spark itself is told, or local[*].",
    )
    conf: Conf = Field(default={}, description='Spark properties, for example { "spark.executor.memory" = "4g" }.')
    ranges: int | None = Field(
        default=None, ge=1, description="Key ranges of one compaction, each a task; none: the cluster's cores."
    )
    archive: str | None = Field(default=None, description="A packed Python environment for the executors.")
    event_host: str | None = Field(
        default=None, description="Where executors reach this process; none: Spark's own address of the driver."
    )

    @field_serializer("conf")
    def _show_conf(self, conf: dict[str, str]) -> dict[str, str]:
        return {name: HIDDEN if _SECRET_NAME.search(name) else value for name, value in conf.items()}

    @field_serializer("master")
    def _show_master(self, master: str | None) -> str | None:
        return None if master is None else _CONNECT_TOKEN.sub(rf"\1{HIDDEN}", master)

    def settings(self) -> SparkSettings:
        """How a session is made."""
        return SparkSettings(
            master=self.master,
            conf=tuple(sorted(self.conf.items())),
            ranges=self.ranges,
            archive=self.archive,
            event_host=self.event_host,
        )
