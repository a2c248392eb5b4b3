"""The settings of a daemon that can serve several databases of one store."""

from typing import Self

from pydantic import Field, model_validator

from shale.errors import InvalidRequestError
from shale.service.config.sections import PositiveSeconds, Texts, TextsByName
from shale.service.config.settings import DaemonSettings
from shale.store.location import normalize_path
from shale.telemetry.metrics import Metrics


class SeveralDatabasesSettings(DaemonSettings):
    """Which databases a daemon serves besides that of ``database``, or instead of it."""

    databases: Texts = Field(default=(), description="Paths of more databases in the same store.")
    databases_below: str | None = Field(
        default=None, description="Also all databases directly below this path, including later ones."
    )
    databases_interval: PositiveSeconds = Field(
        default=60.0, description="Interval between searches for new or missing databases."
    )
    database_aliases: TextsByName = Field(
        default={},
        description='Labels db of metrics and logs by path, for example { "shop/orders" = "orders" }; '
        "by default the path.",
    )

    @model_validator(mode="after")
    def _has_paths(self) -> Self:
        try:
            self.roots()
            normalize_path(self.databases_below or "")
            if self.database.location().path in self.database_aliases:
                raise InvalidRequestError("database_aliases: the database of database.url has database.alias")
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def roots(self) -> tuple[str, ...]:
        """Return the paths of the named databases; a store URL without a path names none if others are given.

        Raises:
            InvalidRequestError: a path is malformed.
        """
        path = self.database.location().path
        others = [normalize_path(each) for each in self.databases]
        named_alone = not others and self.databases_below is None
        return tuple(dict.fromkeys([*([path] if path or named_alone else []), *others]))

    @property
    def serves_one(self) -> bool:
        """Whether the database of ``database`` is the only one."""
        return self.databases_below is None and self.roots() == (self.database.location().path,)

    def label_of(self, root: str) -> str:
        """Return the label ``db`` of a database."""
        if root == self.database.location().path:
            return self.database.label()
        return self.database_aliases.get(root, root)

    def metrics_of(self, metrics: Metrics, root: str) -> Metrics:
        """Return the metrics of a database.

        Args:
            metrics: those of the process, which have the label of its main database.
            root: the path of the database.
        """
        return metrics if root == self.database.location().path else metrics.for_database(self.label_of(root))

    def preflight_path(self) -> str:
        """Return the path of the first database, or the folder of all of them."""
        return next(iter(self.roots()), normalize_path(self.databases_below or ""))
