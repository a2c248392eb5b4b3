"""What can be set about a worker; the defaults are SlateDB's (docs/protocol.md, Appendix A)."""

from dataclasses import dataclass

from shale.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker finds and keeps jobs.

    Args:
        name: label of metrics, stable over restarts (host or pod name).
        compactions_poll_interval_s: mean time between two looks for jobs; each is 0.5 to 1.5 times that.
        heartbeat_interval_s: time between two signs of life, which also carry the progress.
        persist_every_sst: a heartbeat after each finished SST too.
        persist_interval_s: least time between two of these; what was finished within it is done again after a crash.
        retry_delay_s, retry_delay_max_s: wait before a job that failed here is claimed again, doubled every time.
        max_job_attempts: failures here after which this worker leaves a job to others; ``None``: never.
        release_timeout_s: how long a stopping worker tries to give its jobs back.
    """

    name: str = "embedded"
    max_concurrent_compactions: int = 4
    compactions_poll_interval_s: float = 5.0
    heartbeat_interval_s: float = 10.0
    persist_every_sst: bool = False
    persist_interval_s: float = 1.0
    retry_delay_s: float = 1.0
    retry_delay_max_s: float = 300.0
    max_job_attempts: int | None = None
    release_timeout_s: float = 10.0


def check_heartbeats(options: WorkerOptions, timeout_s: float) -> None:
    """Refuse heartbeats so rare that one lost or late beat would cost the job.

    Raises:
        InvalidRequestError: fewer than two fit into the coordinator's timeout.
    """
    if options.heartbeat_interval_s * 2 > timeout_s:
        raise InvalidRequestError(
            f"heartbeat_interval {options.heartbeat_interval_s} s must be at most half of "
            f"worker_heartbeat_timeout {timeout_s} s"
        )
