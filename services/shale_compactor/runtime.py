"""The links between the coordinator and the workers of one process."""

from collections.abc import Awaitable, Callable
from dataclasses import field

from shale.concurrency.signal import WakeEvent
from shale.core.lazy_dataclass import dataclass
from shale_compactor.coordinator.view_sizes import ViewSizes
from shale_compactor.worker.job_slots import JobSlots


async def _always_alive() -> None:
    """Accept any database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorRuntime:
    """Shared by the coordinator and the workers of one process.

    Args:
        require_alive: raises once the database is marked as destroyed; called at each poll.
        jobs_ready: set when jobs were scheduled, to wake the worker.
        results_ready: set when a result is stored, to wake the coordinator.
        view_sizes: measures views that show a part of their SST; ``None``: policies see the sizes of whole SSTs.
        worker_id: of the worker; empty: it chooses one.
        slots: for the jobs of all workers of the process; ``None``: the worker has its own.
    """

    require_alive: Callable[[], Awaitable[None]] = _always_alive
    jobs_ready: WakeEvent = field(default_factory=WakeEvent)
    results_ready: WakeEvent = field(default_factory=WakeEvent)
    view_sizes: ViewSizes | None = None
    worker_id: str = ""
    slots: JobSlots | None = None
