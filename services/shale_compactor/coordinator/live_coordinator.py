"""Detect another running coordinator (docs/reference/protocol.md 14.1).

A SlateDB writer embeds a coordinator by default, and claiming its epoch stops the whole writer.  So a daemon checks
before it starts.  Safety does not depend on the check.
"""

from collections.abc import Sequence

from shale.compaction.entries import with_status
from shale.env import Env
from shale.errors import ConflictError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.versioned import VersionMeta
from shale.types import Compactions, CompactionStatus, Manifest
from shale.types.writer_sign import embedded_compactor
from shale_compactor.coordinator.options import CoordinatorOptions

_S = CompactionStatus
_POLLS = 3
_ATTENDED_WITHIN_S = 30.0
"""Time within which a coordinator commits results; by default it checks every second."""


class LiveCoordinator(ConflictError):
    """Another coordinator is running; stop it, or replace it with ``--take-over``."""


async def require_no_live_coordinator(
    manifest: Manifest, store: CompactionsStore, env: Env, options: CoordinatorOptions
) -> None:
    """Check that no other coordinator seems to run, but for one that gives way: see ``_gives_way``.

    Args:
        manifest: the newest manifest, read before.

    Raises:
        LiveCoordinator: the compactions file has changed recently, or a worker has sent a heartbeat recently.
    """
    versions = await store.list_versions()
    latest = await store.try_read_latest() if versions else None
    if latest is None or has_released_leadership(manifest, latest.value):
        return
    if _gives_way(manifest, latest.value, options):
        return
    reason = _sign_of_life(versions[-1], latest.value, env.clock.now_ms(), options)
    if reason is None or await _is_unattended(versions, latest.value, store, env.clock.now_ms(), options):
        return
    raise LiveCoordinator(f"{reason}; --take-over replaces it")


def _gives_way(manifest: Manifest, latest: Compactions, options: CoordinatorOptions) -> bool:
    """Return whether the coordinator is in the process of a writer, and gives way to this one.

    It gives way to one of its own process, and ends with a writer that was replaced: in both cases it is no longer
    needed once the writer of this process has claimed.  A killed program that is started again does not wait for it.
    """
    embedded = embedded_compactor(manifest)
    if embedded is None or embedded.epoch != latest.compactor_epoch:
        return False
    return options.writer_epoch is None or options.writer_epoch == manifest.writer_epoch


def has_released_leadership(manifest: Manifest, compactions: Compactions) -> bool:
    """Return whether the owner of the compactions' epoch no longer owns the manifest's.

    It has released its leadership, or its successor died between its two claims.
    """
    return manifest.compactor_epoch > compactions.compactor_epoch


def shortest_silence_s(compactions: Compactions, now_ms: int) -> float | None:
    """Return the seconds since the latest heartbeat of all running jobs, by the workers' clocks."""
    running = with_status(compactions, _S.RUNNING)
    beats = [entry.worker.last_heartbeat_ms for entry in running if entry.worker is not None]
    return (now_ms - max(beats)) / 1000 if beats else None


def waits_still(then: Compactions, now: Compactions) -> bool:
    """Return whether a result that waited for a commit in ``then`` still waits unchanged in ``now``.

    Submissions do not count: their poll interval is a setting and may be minutes.
    """
    return any(entry == now.get(entry.id) for entry in with_status(then, _S.COMPACTED))


def _sign_of_life(newest: VersionMeta, latest: Compactions, now_ms: int, options: CoordinatorOptions) -> str | None:
    age_s = (now_ms - newest.last_modified_ms) / 1000
    if age_s < _POLLS * options.poll_interval_s:
        return f"another coordinator was active {max(age_s, 0):.1f} s ago"
    silence_s = shortest_silence_s(latest, now_ms)
    if silence_s is not None:
        # A heartbeat is a write, so the last one cannot be newer than the file, whatever the worker's clock says.
        silence_s = max(silence_s, age_s)
    if silence_s is not None and silence_s < options.worker_heartbeat_timeout_s:
        return f"a worker was active {max(silence_s, 0):.1f} s ago, so its coordinator may be alive"
    return None


async def _is_unattended(
    versions: Sequence[VersionMeta],
    latest: Compactions,
    store: CompactionsStore,
    now_ms: int,
    options: CoordinatorOptions,
) -> bool:
    """Return whether only workers have written for a while although results were waiting for a commit."""
    timeout_ms = 1000 * max(_ATTENDED_WITHIN_S, _POLLS * options.poll_interval_s)
    old = [version.id for version in versions if now_ms - version.last_modified_ms >= timeout_ms]
    then = await store.read(old[-1]) if old else None
    return then is not None and waits_still(then, latest)
