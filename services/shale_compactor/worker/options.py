"""Options of a worker; the defaults are SlateDB's (docs/reference/protocol.md, Appendix A)."""

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.types import Ulid


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker.

    Args:
        name: metric label, stable over restarts (host or pod name).
        max_concurrent_compactions: concurrent jobs of this worker.
        compactions_poll_interval_s: mean time between two polls for jobs; each is 0.5 to 1.5 times that.
        heartbeat_interval_s: time between two heartbeats, which also publish the progress.
        persist_every_sst: also write a heartbeat after each finished SST.
        persist_interval_s: minimum time between two of these; SSTs finished within it are lost in a crash.
        retry_delay_s, retry_delay_max_s: delay before a failed job is claimed again, doubled after each failure.
        max_job_attempts: attempts of all workers after which a job is Failed; ``None``: no limit.
        release_timeout_s: time limit for releasing the jobs of a stopping worker.
        only: ids of the jobs that this worker may claim; ``None``: all.
    """

    name: str = "embedded"
    max_concurrent_compactions: int = 4
    compactions_poll_interval_s: float = 5.0
    heartbeat_interval_s: float = 10.0
    persist_every_sst: bool = True
    persist_interval_s: float = 1.0
    retry_delay_s: float = 1.0
    retry_delay_max_s: float = 300.0
    max_job_attempts: int | None = 10
    release_timeout_s: float = 10.0
    only: frozenset[Ulid] | None = None


def check_heartbeats(options: WorkerOptions, timeout_s: float) -> None:
    """Check that one lost or late heartbeat does not cost the job.

    Raises:
        InvalidRequestError: the heartbeat interval is above half of the coordinator's timeout.
    """
    if options.heartbeat_interval_s * 2 > timeout_s:
        raise InvalidRequestError(
            f"heartbeat_interval {options.heartbeat_interval_s} s must be at most half of "
            f"worker_heartbeat_timeout {timeout_s} s"
        )
