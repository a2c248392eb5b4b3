"""Settings of the worker daemon.

They have the names of the compactor's settings, so that both daemons can share a configuration file; settings of the
coordinator are ignored.
"""

from typing import ClassVar

from pydantic import model_validator

from shale.errors import InvalidRequestError
from shale_compactor.settings import CompactorOptionsSection, MergingSettings, WorkerSection
from shale_compactor.worker.options import check_heartbeats


class OwnOptionsSection(CompactorOptionsSection):
    """SlateDB's ``compactor_options``; the worker cannot be disabled here."""

    # Narrower than in the base class, which type checkers refuse for mutable attributes; settings are never assigned.
    worker: WorkerSection = WorkerSection()  # pyright: ignore[reportIncompatibleVariableOverride]


class WorkerSettings(MergingSettings):
    """The worker: claims and executes compactions that the coordinator has scheduled."""

    ROLE: ClassVar[str] = "worker"

    compactor_options: OwnOptionsSection = OwnOptionsSection()  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _beats_often_enough(self) -> "WorkerSettings":
        try:
            check_heartbeats(self.worker_options(), self.compactor_options.worker_heartbeat_timeout)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self
