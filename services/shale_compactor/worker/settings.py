"""The settings of a worker that is a process of its own.

They are those of the compactor, under the same names, so that one file serves both; what only the coordinator uses is
passed over.
"""

from typing import ClassVar

from pydantic import model_validator

from shale.errors import InvalidRequestError
from shale_compactor.settings import CompactorOptionsSection, MergingSettings, WorkerSection
from shale_compactor.worker.options import check_heartbeats


class OwnOptionsSection(CompactorOptionsSection):
    """SlateDB's ``compactor_options``; here there is always a worker."""

    # Narrower than in the base, which type checkers refuse for what may be assigned; settings never are.
    worker: WorkerSection = WorkerSection()  # pyright: ignore[reportIncompatibleVariableOverride]


class WorkerSettings(MergingSettings):
    """The worker: claims compactions that a coordinator has scheduled, and executes them."""

    ROLE: ClassVar[str] = "worker"

    compactor_options: OwnOptionsSection = OwnOptionsSection()  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _beats_often_enough(self) -> "WorkerSettings":
        try:
            check_heartbeats(self.worker_options(), self.compactor_options.worker_heartbeat_timeout)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self
