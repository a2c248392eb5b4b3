"""What can be set about the compactor; the defaults are SlateDB's (docs/protocol.md, Appendix A)."""

from dataclasses import dataclass, field

from shale_compactor.scheduler import SizeTieredOptions

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Options of the one process that schedules and commits.

    Args:
        poll_interval_s: time between two rounds of scheduling.
        commit_compacted_interval_s: time between two looks for results, while jobs are active.
        worker_heartbeat_timeout_s: silence after which a job is taken from its worker.
        checkpoint_lifetime_s: how long a commit protects the inputs for those who still read them.
    """

    scheduler: SizeTieredOptions = field(default_factory=SizeTieredOptions)
    poll_interval_s: float = 5.0
    commit_compacted_interval_s: float = 1.0
    worker_heartbeat_timeout_s: float = 30.0
    checkpoint_lifetime_s: float = 900.0
    enable_trivial_move: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker finds and keeps jobs.

    Args:
        name: label of metrics, stable over restarts (host or pod name).
        compactions_poll_interval_s: mean time between two looks for jobs; each is 0.5 to 1.5 times that.
        heartbeat_interval_s: time between two signs of life, which also carry the progress.
        persist_every_sst: a heartbeat after each finished SST too, at most one a second.
        retry_delay_s, retry_delay_max_s: wait before a job that failed here is claimed again, doubled every time.
        max_job_attempts: failures here after which this worker leaves a job to others; ``None``: never.
        release_timeout_s: how long a stopping worker tries to give its jobs back.
    """

    name: str = "embedded"
    max_concurrent_compactions: int = 4
    compactions_poll_interval_s: float = 5.0
    heartbeat_interval_s: float = 10.0
    persist_every_sst: bool = False
    retry_delay_s: float = 1.0
    retry_delay_max_s: float = 300.0
    max_job_attempts: int | None = None
    release_timeout_s: float = 5.0
