"""``spark``: which compactions run on Spark, and how the Spark session is configured.

Processes that execute compactions and ``shale spark …`` share this section.  This module does not import Spark.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_serializer

from shale.core.lazy_dataclass import dataclass
from shale.core.url_secrets import without_url_secrets, without_userinfo
from shale.service.config.secret_url import SecretUrl, url_text
from shale.service.config.section import Section
from shale.service.config.sections import Bytes

SPARK_MIN_BYTES = 8 * 1024**3

SECRET_NAME = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)
"""Spark redacts the same properties in its web UI."""
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|[a-z0-9]+://.+", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Configuration of a Spark session.  Everything else comes from Spark's own configuration.

    Args:
        master: ``local[2]``, ``spark://host:7077``, ``k8s://https://…``, or ``sc://host:15002`` for Spark Connect.
        conf: Spark properties; they override the ones that Shale sets.
        ranges: key ranges of one compaction, one task each; by default as many as the cluster has cores.
        archive: path or URL of a packed Python environment that every executor unpacks.
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
        """Whether the session is on a Spark Connect server, so that this process needs no Java."""
        return self.master is not None and self.master.startswith("sc://")


def parse_master(value: str | None) -> str | None:
    """Check the form of a master URL, because Spark reports a bad one only after seconds and in the Java log.

    Raises:
        ValueError: Spark knows no such master.
    """
    if value is not None and not _MASTER.fullmatch(value):
        shown = repr(without_url_secrets(without_userinfo(value)))
        raise ValueError(f"{shown} is none of local, local[2], spark://host:7077, k8s://https://…, sc://host, yarn")
    return value


def _check_master(url: SecretUrl | None) -> SecretUrl | None:
    parse_master(url_text(url))
    return url


def parse_conf(value: Any) -> Any:
    """Parse Spark properties from a table, nested or flat, or from text with ``name=value`` lines.

    Raises:
        ValueError: the value has neither form.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = tomllib.loads(f"value = {value.strip()}")["value"]
        except (ValueError, RecursionError) as error:  # a number of thousands of digits raises a plain ValueError
            raise ValueError(f"is not a table: {error}") from error
    if isinstance(value, str):
        return dict(_line(line.strip()) for line in value.splitlines() if line.strip())
    return dict(_flat(value)) if isinstance(value, Mapping) else value


def _hidden(conf: Any) -> Any:
    """Wrap the values: one with the name of a secret is not printed at all, others without secrets of URLs."""
    if not isinstance(conf, Mapping):
        return conf
    return {name: SecretStr(text) if SECRET_NAME.search(name) else SecretUrl(text) for name, text in conf.items()}


def _line(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{without_url_secrets(line)!r}: write name=value, one property per line")
    return name.strip(), value.strip()


def _flat(tree: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Flatten properties to their full names: TOML reads ``spark.executor.memory = "1g"`` as nested tables."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value).lower() if isinstance(value, bool) else str(value)


Conf = Annotated[
    dict[str, SecretStr | SecretUrl],
    BeforeValidator(_hidden),
    BeforeValidator(parse_conf, json_schema_input_type=dict[str, Any] | str),
]
"""Spark properties by name."""


class SparkSection(Section):
    """Compactions on Spark; needs the extra ``pip install 'shale[spark]'``."""

    executor: Literal["auto", "local", "spark"] = Field(
        default="local", description="Where compactions run: local (this process), spark, or auto (by input size)."
    )
    spark_min_bytes: Bytes = Field(
        default=SPARK_MIN_BYTES, gt=0, description="auto: compactions with at least this much input run on Spark."
    )
    master: Annotated[SecretUrl | None, AfterValidator(_check_master)] = Field(
        default=None,
        description="spark://…, k8s://…, local[n] or sc://…; none: Spark's own configuration, or local[*].",
    )
    conf: Conf = Field(default={}, description='Spark properties, for example { "spark.executor.memory" = "4g" }.')
    ranges: int | None = Field(
        default=None,
        ge=1,
        description="Key ranges of one compaction, one task each; none: the number of cores of the cluster.",
    )
    archive: SecretUrl | None = Field(default=None, description="A packed Python environment for the executors.")
    event_host: str | None = Field(
        default=None, description="The address at which executors reach this process; none: Spark's driver address."
    )

    @field_serializer("conf")
    def _show_conf(self, conf: dict[str, SecretStr | SecretUrl]) -> dict[str, str]:
        return {name: str(value) for name, value in conf.items()}

    def settings(self) -> SparkSettings:
        """Return the configuration of a session."""
        return SparkSettings(
            master=url_text(self.master),
            conf=tuple(sorted((name, value.get_secret_value()) for name, value in self.conf.items())),
            ranges=self.ranges,
            archive=url_text(self.archive),
            event_host=self.event_host,
        )
