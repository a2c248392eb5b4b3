"""The lifecycle of a compaction, derived from the retained versions of the compactions file.

Each step of a compaction is a version with a time from the store.  GC deletes old versions, so the first steps may be
missing; values that are not known are ``None``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Self

from shale.compaction.progress import outputs_of
from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction, Compactions, CompactionStatus, Ulid

_STARTED = (CompactionStatus.RUNNING, CompactionStatus.COMPACTED)


@dataclass(frozen=True, slots=True)
class CompactionsVersion:
    """One stored version; ``written_ms``: when it was written, by the store's clock.

    Running entries are kept without their progress, which is large and repeated in each version; ``output_bytes`` has
    its total.
    """

    file_id: int
    written_ms: int
    compactions: Compactions
    output_bytes: Mapping[Ulid, int]

    @classmethod
    def of(cls, file_id: int, written_ms: int, compactions: Compactions) -> Self:
        """Return the parts of a version that are kept in memory."""
        entries = tuple(entry if entry.ctx is None else replace(entry, ctx=None) for entry in compactions.entries)
        written = {
            entry.id: sum(sst.estimated_size_bytes for sst in outputs_of(entry)) for entry in compactions.entries
        }
        return cls(file_id, written_ms, replace(compactions, entries=entries), written)


@dataclass(frozen=True, slots=True)
class VersionHistory:
    """The newest version, and the retained versions up to it, ascending."""

    latest: Compactions = field(default_factory=Compactions)
    snapshots: tuple[CompactionsVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedEntry:
    """An entry in one version; ``output_bytes``: the output that was published by then."""

    file_id: int
    written_ms: int
    entry: Compaction
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLifecycle:
    """The lifecycle of one compaction, as far as retained versions show it.

    Args:
        started_ms: when the first claim was stored; ``None`` if that version is not retained.
        finished_ms: when its end was stored; ``None`` if that version is not retained.
        attempts: number of observed claims.
        running_since: the first version in which it was Running or Compacted.
        last: the last version that has it.
        before_end: the last version in which it was active, if the next version is retained.
        ended_in: that next version, which has it finished or not at all.
        ended_before: compactions that had ended by the version of ``before_end``.
        vanished_in: the first version that does not have it any more.
    """

    started_ms: int | None = None
    finished_ms: int | None = None
    attempts: int = 0
    running_since: ObservedEntry | None = None
    last: ObservedEntry | None = None
    before_end: ObservedEntry | None = None
    ended_in: CompactionsVersion | None = None
    ended_before: frozenset[Ulid] = frozenset()
    vanished_in: CompactionsVersion | None = None

    @property
    def end_ms(self) -> int | None:
        """The best known time of its end: at the latest, when it was last observed."""
        if self.ended_in is not None:
            return self.ended_in.written_ms
        if self.finished_ms is not None:
            return self.finished_ms
        return self.last.written_ms if self.last is not None else None


def lifecycle_of(compaction_id: Ulid, snapshots: Sequence[CompactionsVersion]) -> CompactionLifecycle:
    """Return the lifecycle of one compaction; ``snapshots`` ascend by file id."""
    seen = [
        ObservedEntry(snapshot.file_id, snapshot.written_ms, entry, snapshot.output_bytes[entry.id])
        for snapshot in snapshots
        if (entry := snapshot.compactions.get(compaction_id)) is not None
    ]
    if not seen:
        return CompactionLifecycle()
    working = [observed for observed in seen if observed.entry.status in _STARTED]
    active = [observed for observed in seen if observed.entry.is_active]
    start_is_known = bool(active) and active[0].entry.status not in _STARTED
    after = next((each for each in snapshots if each.file_id == active[-1].file_id + 1), None) if active else None
    return CompactionLifecycle(
        started_ms=working[0].written_ms if working and start_is_known else None,
        finished_ms=after.written_ms if after is not None else None,
        attempts=_claims(seen),
        running_since=working[0] if working else None,
        last=seen[-1],
        before_end=active[-1] if after is not None else None,
        ended_in=after,
        ended_before=_ended_by(active[-1].file_id, snapshots) if active else frozenset(),
        vanished_in=next((each for each in snapshots if each.file_id > seen[-1].file_id), None),
    )


def all_ids(snapshots: Iterable[CompactionsVersion]) -> tuple[Ulid, ...]:
    """Return the ids of all compactions in all versions, ascending."""
    return tuple(sorted({entry.id for snapshot in snapshots for entry in snapshot.compactions.entries}))


def _ended_by(file_id: int, snapshots: Iterable[CompactionsVersion]) -> frozenset[Ulid]:
    versions = (snapshot.compactions for snapshot in snapshots if snapshot.file_id == file_id)
    return frozenset(entry.id for each in versions for entry in each.entries if entry.status.is_finished)


def _claims(seen: Sequence[ObservedEntry]) -> int:
    """Count the claims: by another worker, or by the same one after a release."""
    claims, holder = 0, None
    for observed in seen:
        entry = observed.entry
        if entry.status is CompactionStatus.RUNNING:
            worker_id = entry.worker.worker_id if entry.worker is not None else ""
            claims += worker_id != holder
            holder = worker_id
        elif entry.status is CompactionStatus.COMPACTED:
            claims = max(claims, 1)
        else:
            holder = None
    return claims
