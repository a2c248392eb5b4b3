"""Settings of the worker daemon.

They have the names of the compactor's settings, so that both daemons can share a configuration file; settings of the
coordinator are ignored.
"""

from typing import ClassVar

from pydantic import model_validator

from shale.errors import InvalidRequestError
from shale.service.config.several_databases import SeveralDatabasesSettings
from shale_compactor.settings import CompactorOptionsSection, MergingSettings, WorkerSection
from shale_compactor.worker.options import check_heartbeats


class OwnOptionsSection(CompactorOptionsSection):
    """SlateDB's ``compactor_options``; the worker cannot be disabled here."""

    # Narrower than in the base class, which type checkers refuse for mutable attributes; settings are never assigned.
    worker: WorkerSection = WorkerSection()  # pyright: ignore[reportIncompatibleVariableOverride]


class WorkerSettings(SeveralDatabasesSettings, MergingSettings):
    """The worker: claims and executes compactions that the coordinators of its databases have scheduled."""

    ROLE: ClassVar[str] = "worker"

    compactor_options: OwnOptionsSection = OwnOptionsSection()  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _beats_often_enough(self) -> "WorkerSettings":
        try:
            check_heartbeats(self.worker_options(), self.compactor_options.worker_heartbeat_timeout)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _executes_here(self) -> "WorkerSettings":
        if not self.serves_one and self.spark.executor != "local":
            raise ValueError(
                f"spark.executor = {self.spark.executor} serves one database: remove databases and databases_below, "
                "or start a worker for each database"
            )
        return self
