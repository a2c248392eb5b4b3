"""What a worker writes into the compactions file, as pure edits (docs/protocol.md 6.9).

A worker touches only entries that it owns: Running under its id.  Each function gives the new value, or ``None`` when
there is nothing to write, and is safe to run again on a newer version.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

from shale.compaction.entries import with_entries, with_entry
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
from shale_compactor.worker.contexts import contradiction

_S = CompactionStatus

Edit: TypeAlias = Callable[[Compactions], Compactions | None]


def claimable(compactions: Compactions, excluded: Collection[Ulid], capacity: int) -> list[Compaction]:
    """Scheduled tiered entries without a worker, oldest first, up to the free capacity."""
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
    """Whether the entry is Running under this worker."""
    return (
        entry is not None
        and entry.status is _S.RUNNING
        and entry.worker is not None
        and entry.worker.worker_id == worker_id
    )


def owned(compactions: Compactions, worker_id: str) -> list[Ulid]:
    """Every entry that is Running under this worker."""
    return [entry.id for entry in compactions.entries if owns(entry, worker_id)]


def claim(compactions: Compactions, ids: Collection[Ulid], worker_id: str, now_ms: int) -> Compactions:
    """Make entries Running under this worker."""
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    chosen = [entry for entry in compactions.entries if entry.id in ids]
    return with_entries(compactions, (replace(entry, status=_S.RUNNING, worker=worker) for entry in chosen))


def heartbeat(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str, now_ms: int
) -> Compactions | None:
    """Stamp every owned entry and publish what it has finished so far.

    An entry whose stored progress ours does not continue is left alone; ``contradicted`` finds it.
    """
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    changed = [
        replace(entry, worker=worker, ctx=progress[entry.id] or entry.ctx)
        for entry in compactions.entries
        if entry.id in progress and owns(entry, worker_id) and contradiction(entry.ctx, progress[entry.id]) is None
    ]
    return with_entries(compactions, changed) if changed else None


def contradicted(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str
) -> dict[Ulid, str]:
    """Owned entries whose stored progress ours does not continue, and why."""
    found = {}
    for entry in compactions.entries:
        if entry.id in progress and owns(entry, worker_id):
            reason = contradiction(entry.ctx, progress[entry.id])
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
    """Hand the result over; ``None`` if the job is not ours any more, and its outputs are garbage then."""
    entry = compactions.get(id)
    if entry is None or not owns(entry, worker_id):
        return None
    worker = WorkerClaim(worker_id=worker_id, last_heartbeat_ms=now_ms)
    done = replace(entry, status=_S.COMPACTED, output_ssts=output_ssts, worker=worker, ctx=None)
    return with_entry(compactions, done)


def release(
    compactions: Compactions, progress: Mapping[Ulid, CompactionContext | None], worker_id: str
) -> Compactions | None:
    """Give owned entries back at once, with what they have finished so far if it continues what is stored."""
    changed = []
    for entry in compactions.entries:
        if entry.id in progress and owns(entry, worker_id):
            ours = progress[entry.id]
            context = entry.ctx if ours is None or contradiction(entry.ctx, ours) is not None else ours
            changed.append(replace(entry, status=_S.SCHEDULED, worker=None, ctx=context))
    return with_entries(compactions, changed) if changed else None
