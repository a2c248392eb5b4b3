"""Reclaim jobs of workers that stopped sending heartbeats (docs/reference/protocol.md 6.6, step 2).

A heartbeat has the worker's clock, which may be wrong.  So silence is measured with this process's monotonic clock,
from when it last observed a change of the heartbeat.
"""

from collections.abc import Mapping
from dataclasses import replace

from shale.compaction.entries import finished, with_entries, with_status
from shale.compaction.validation import check_sources_exist
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, Ulid, WorkerClaim
from shale_compactor.planning.step import PlanningStep, Rejected

_S = CompactionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHeartbeat:
    """A claim as last observed, and since when it has not changed (monotonic seconds)."""

    claim: WorkerClaim | None
    since_s: float


def observe_heartbeats(
    seen: Mapping[Ulid, ObservedHeartbeat], compactions: Compactions, now_s: float, *, unwatched_s: float = 0.0
) -> dict[Ulid, ObservedHeartbeat]:
    """Record all Running entries; an unchanged claim keeps its time, others start now.

    Args:
        unwatched_s: time before this observation that does not count as silence.  This process could not poll, because
            the store was unavailable or the machine suspended; a healthy worker could not write then, either.
    """
    observed = {}
    for entry in with_status(compactions, _S.RUNNING):
        before = seen.get(entry.id)
        unchanged = before is not None and before.claim == entry.worker
        since_s = min(before.since_s + unwatched_s, now_s) if unchanged and before else now_s
        observed[entry.id] = ObservedHeartbeat(claim=entry.worker, since_s=since_s)
    return observed


def plan_reclaim(
    manifest: Manifest,
    compactions: Compactions,
    seen: Mapping[Ulid, ObservedHeartbeat],
    *,
    now_s: float,
    timeout_s: float,
) -> PlanningStep:
    """Set jobs of silent workers back to Scheduled, with their progress; fail jobs whose tree or sources are gone."""
    rejected = _sourceless(manifest, compactions)
    failed_ids = {rejection.entry.id for rejection in rejected}
    reclaimed = [
        entry
        for entry in with_status(compactions, _S.RUNNING)
        if entry.id not in failed_ids and _is_silent(entry, seen.get(entry.id), now_s, timeout_s)
    ]
    changed = [finished(rejection.entry, _S.FAILED) for rejection in rejected]
    changed += [replace(entry, status=_S.SCHEDULED, worker=None) for entry in reclaimed]
    return PlanningStep(
        manifest=manifest,
        compactions=with_entries(compactions, changed) if changed else compactions,
        reclaimed=tuple(reclaimed),
        rejected=tuple(rejected),
    )


def _is_silent(entry: Compaction, seen: ObservedHeartbeat | None, now_s: float, timeout_s: float) -> bool:
    return entry.worker is None or (seen is not None and now_s - seen.since_s > timeout_s)


def _sourceless(manifest: Manifest, compactions: Compactions) -> list[Rejected]:
    """Return the jobs without sources, which workers would claim and release repeatedly."""
    rejected = []
    for entry in compactions.entries:
        if entry.status not in (_S.SCHEDULED, _S.RUNNING):
            continue
        try:
            check_sources_exist(manifest, entry.spec)
        except InvalidCompaction as error:
            rejected.append(Rejected(entry=entry, rule=error.rule, message=str(error)))
    return rejected
