"""Taking jobs back from workers that fell silent (docs/protocol.md 6.6, step 2).

A worker's heartbeat carries its own clock, which may be wrong.  So silence is measured on our monotonic clock, from
the moment we last saw the heartbeat change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shale.compaction.entries import finished, with_entries, with_status
from shale.compaction.validation import check_sources_exist
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, Ulid, WorkerClaim
from shale_compactor.states.step import Rejected, Step

_S = CompactionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A claim as we last saw it, and since when it has looked like that (monotonic seconds)."""

    claim: WorkerClaim | None
    since_s: float


def observe(
    seen: Mapping[Ulid, Sighting], compactions: Compactions, now_s: float, *, unwatched_s: float = 0.0
) -> dict[Ulid, Sighting]:
    """Note every Running entry; a claim that has not changed keeps its time, others start now.

    Args:
        unwatched_s: time before this look that does not count as silence: we could not look ourselves, because the
            store was away or the machine was suspended, and then a healthy worker could not write either.
    """
    sightings = {}
    for entry in with_status(compactions, _S.RUNNING):
        before = seen.get(entry.id)
        unchanged = before is not None and before.claim == entry.worker
        since_s = min(before.since_s + unwatched_s, now_s) if unchanged and before else now_s
        sightings[entry.id] = Sighting(claim=entry.worker, since_s=since_s)
    return sightings


def plan_reclaim(
    manifest: Manifest, compactions: Compactions, seen: Mapping[Ulid, Sighting], *, now_s: float, timeout_s: float
) -> Step:
    """Return silent jobs to Scheduled with their progress; fail jobs whose tree or sources are gone."""
    rejected = _sourceless(manifest, compactions)
    doomed = {rejection.entry.id for rejection in rejected}
    reclaimed = [
        entry
        for entry in with_status(compactions, _S.RUNNING)
        if entry.id not in doomed and _is_silent(entry, seen.get(entry.id), now_s, timeout_s)
    ]
    changed = [finished(rejection.entry, _S.FAILED) for rejection in rejected]
    changed += [replace(entry, status=_S.SCHEDULED, worker=None) for entry in reclaimed]
    return Step(
        manifest=manifest,
        compactions=with_entries(compactions, changed) if changed else compactions,
        reclaimed=tuple(reclaimed),
        rejected=tuple(rejected),
    )


def _is_silent(entry: Compaction, seen: Sighting | None, now_s: float, timeout_s: float) -> bool:
    return entry.worker is None or (seen is not None and now_s - seen.since_s > timeout_s)


def _sourceless(manifest: Manifest, compactions: Compactions) -> list[Rejected]:
    """Jobs that workers would claim and release for ever."""
    rejected = []
    for entry in compactions.entries:
        if entry.status not in (_S.SCHEDULED, _S.RUNNING):
            continue
        try:
            check_sources_exist(manifest, entry.spec)
        except InvalidCompaction as error:
            rejected.append(Rejected(entry=entry, rule=error.rule, message=str(error)))
    return rejected
