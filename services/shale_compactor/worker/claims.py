"""Edits of a worker to the compactions file, as pure functions (docs/reference/protocol.md 6.9).

A worker changes only entries that it owns: Running under its id.  Each function returns the new value, or ``None``
if there is nothing to write, and can be applied again to a newer version.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from shale.compaction.entries import finished, with_entries, with_entry
from shale.types import (
    Compaction,
    CompactionContext,
    Compactions,
    CompactionStatus,
    Sst,
    TieredSpec,
    Ulid,
    WorkerClaim,
)
from shale_compactor.worker.progress_checks import validate_progress

_S = CompactionStatus

Edit: TypeAlias = Callable[[Compactions], Compactions | None]


def claimable(compactions: Compactions, excluded: Collection[Ulid], capacity: int) -> list[Compaction]:
    """Return Scheduled tiered entries without a worker, oldest first, up to the free capacity."""
    entries = [
        entry
        for entry in compactions.entries
        if entry.status is _S.SCHEDULED
        and entry.worker is None
        and isinstance(entry.spec, TieredSpec)
        and entry.id not in excluded
    ]
    return entries[: max(0, capacity)]


def owns(entry: Compaction | None, worker_id: str) -> bool:
    """Return whether the entry is Running under this worker."""
    return (
        entry is not None
        and entry.status is _S.RUNNING
        and entry.worker is not None
        and entry.worker.worker_id == worker_id
    )


def owned(compactions: Compactions, worker_id: str) -> list[Ulid]:
    """Return the ids of all entries that are Running under this worker."""
    return [entry.id for entry in compactions.entries if owns(entry, worker_id)]


def claim(compactions: Compactions, ids: Collection[Ulid], worker_id: str, now_ms: int) -> Compactions:
    """Make entries Running under this worker."""
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    chosen = [entry for entry in compactions.entries if entry.id in ids]
    return with_entries(compactions, (replace(entry, status=_S.RUNNING, worker=worker) for entry in chosen))


def heartbeat(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str, now_ms: int
) -> Compactions | None:
    """Set the heartbeat of each owned entry and publish its progress.

    An entry whose stored progress is not continued by the local one is skipped; ``invalid_progress`` returns it.
    """
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    changed = [
        replace(entry, worker=worker, ctx=progress[entry.id] or entry.ctx)
        for entry in compactions.entries
        if entry.id in progress and owns(entry, worker_id) and validate_progress(entry.ctx, progress[entry.id]) is None
    ]
    return with_entries(compactions, changed) if changed else None


def invalid_progress(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str
) -> dict[Ulid, str]:
    """Return owned entries whose stored progress is not continued by the local one, with the reason."""
    found = {}
    for entry in compactions.entries:
        if entry.id in progress and owns(entry, worker_id):
            reason = validate_progress(entry.ctx, progress[entry.id])
            if reason is not None:
                found[entry.id] = reason
    return found


def finish(
    compactions: Compactions,
    id: Ulid,  # noqa: A002 - the field's name
    output_ssts: tuple[Sst, ...],
    worker_id: str,
    now_ms: int,
) -> Compactions | None:
    """Store the result of a job; return ``None`` if this worker does not own it any more."""
    entry = compactions.get(id)
    if entry is None or not owns(entry, worker_id):
        return None
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    done = replace(entry, status=_S.COMPACTED, output_ssts=output_ssts, worker=worker, ctx=None)
    return with_entry(compactions, done)


def fail(compactions: Compactions, id: Ulid, worker_id: str, now_ms: int) -> Compactions | None:  # noqa: A002
    """End an owned job as Failed; the entry keeps this worker, which tells a failure from a cancellation."""
    entry = compactions.get(id)
    if entry is None or not owns(entry, worker_id):
        return None
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    return with_entry(compactions, replace(finished(entry, _S.FAILED), worker=worker))


def release(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str
) -> Compactions | None:
    """Release owned entries, with their progress if it continues the stored one."""
    changed = []
    for entry in compactions.entries:
        if entry.id in progress and owns(entry, worker_id):
            ours = progress[entry.id]
            context = entry.ctx if ours is None or validate_progress(entry.ctx, ours) is not None else ours
            changed.append(replace(entry, status=_S.SCHEDULED, worker=None, ctx=context))
    return with_entries(compactions, changed) if changed else None
