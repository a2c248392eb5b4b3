"""Whether another coordinator seems to be alive (docs/protocol.md 14.1).

A SlateDB writer embeds a coordinator by default, and taking its epoch closes the whole writer.  So a daemon looks
before it starts; safety does not depend on it.
"""

from shale.compaction.entries import with_status
from shale.env import Env
from shale.errors import ConflictError
from shale.protocol.compactions_store import CompactionsStore
from shale.types import Compactions, CompactionStatus
from shale_compactor.coordinator.options import CoordinatorOptions


class LiveCoordinator(ConflictError):
    """Somebody else coordinates this database; stop it, or insist with ``--take-over``."""


async def require_no_live_coordinator(store: CompactionsStore, env: Env, options: CoordinatorOptions) -> None:
    """Return if nobody seems to coordinate.

    Raises:
        LiveCoordinator: the compactions file has changed a moment ago, or a worker is alive.
    """
    versions = await store.list_versions()
    if not versions:
        return
    age_s = (env.clock.now_ms() - versions[-1].last_modified_ms) / 1000
    if age_s < 3 * options.poll_interval_s:
        raise LiveCoordinator(f"another coordinator was active {max(age_s, 0):.1f} s ago; --take-over replaces it")
    latest = await store.try_read_latest()
    if latest is not None:
        silence_s = shortest_silence_s(latest.value, env.clock.now_ms())
        if silence_s is not None and silence_s < options.worker_heartbeat_timeout_s:
            raise LiveCoordinator(f"a worker was active {max(silence_s, 0):.1f} s ago; --take-over replaces its boss")


def shortest_silence_s(compactions: Compactions, now_ms: int) -> float | None:
    """Seconds since the latest heartbeat of a running job, by the worker's clock."""
    running = with_status(compactions, CompactionStatus.RUNNING)
    beats = [entry.worker.last_heartbeat_ms for entry in running if entry.worker is not None]
    return (now_ms - max(beats)) / 1000 if beats else None
