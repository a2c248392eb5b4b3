"""The compactor daemon: its parts, wired to the shell."""

from collections.abc import Mapping
from typing import Any

import anyio

from shale.service.health import OK, Check, Verdict
from shale.service.process import Process
from shale_compactor.process import Compactor
from shale_compactor.settings import CompactorSettings

_POLLS_MISSED_MAX = 3
_SILENCE_MIN_S = 5.0


async def compact(process: Process[CompactorSettings]) -> None:
    """Coordinate and work until told to stop; claims are given back on the way out.

    Raises:
        InvalidRequestError: a merge operator or compaction filter that settings name cannot be used.
        LiveCoordinator: somebody else coordinates the database, and ``take_over`` is off.
        FencedError: another coordinator has taken over.
    """
    settings = process.settings
    compactor = Compactor(
        process.store,
        process.root,
        process.env,
        settings.options(),
        process.metrics,
        transforms=settings.transforms(),
        protocol=settings.protocol(),
    )
    await process.wait_for(compactor.start)
    process.health.add_status(lambda: _status(compactor))
    process.health.add_ready_check("poll", _poll_check(process, compactor))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run, name="compactor")
        process.ready(epoch=compactor.coordinator.manifest.epoch)
        await process.draining.wait()
        tasks.cancel_scope.cancel()


def _poll_check(process: Process[CompactorSettings], compactor: Compactor) -> Check:
    """Ready while the coordinator looks at its files as often as it should."""
    started_s = process.env.clock.monotonic_s()
    limit_s = max(_POLLS_MISSED_MAX * process.settings.compactor_options.poll_interval, _SILENCE_MIN_S)

    def check() -> Verdict:
        last_s = compactor.coordinator.last_poll_s
        age_s = process.env.clock.monotonic_s() - (last_s if last_s is not None else started_s)
        return OK if age_s < limit_s else Verdict(ok=False, message=f"no poll for {age_s:.0f} s")

    return check


def _status(compactor: Compactor) -> Mapping[str, Any]:
    """What people ask about."""
    coordinator, worker = compactor.coordinator, compactor.worker
    return {
        "epoch": coordinator.manifest.epoch,
        "manifest_id": coordinator.manifest.id,
        "l0": sum(len(tree.l0) for _, tree in coordinator.manifest.value.trees()),
        "sorted_runs": sum(len(tree.compacted) for _, tree in coordinator.manifest.value.trees()),
        "compactions": {str(entry.id): entry.status.name.lower() for entry in coordinator.local.entries},
        "jobs": (
            {str(job_id): round(job.ratio, 3) for job_id, job in worker.jobs.items()} if worker is not None else {}
        ),
    }
