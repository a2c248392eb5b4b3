"""The life of a compaction, read from the versions of the compactions file that are still there.

Every step of a compaction is a version of its own, and the store knows when it was written.  Old versions are
collected, so the beginning of a life may be missing; what was not seen is ``None``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from shale.compaction.progress import outputs_of
from shale.types import Compaction, Compactions, CompactionStatus, Ulid

_STARTED = (CompactionStatus.RUNNING, CompactionStatus.COMPACTED)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One stored version; ``written_ms`` is the store's clock.

    Running entries come without their progress, which is large and in every version; ``output_bytes`` sums it up.
    """

    file_id: int
    written_ms: int
    compactions: Compactions
    output_bytes: Mapping[Ulid, int]

    @classmethod
    def of(cls, file_id: int, written_ms: int, compactions: Compactions) -> Self:
        """What is worth keeping of a version."""
        entries = tuple(entry if entry.ctx is None else replace(entry, ctx=None) for entry in compactions.entries)
        written = {
            entry.id: sum(sst.estimated_size_bytes for sst in outputs_of(entry)) for entry in compactions.entries
        }
        return cls(file_id, written_ms, replace(compactions, entries=entries), written)


@dataclass(frozen=True, slots=True)
class History:
    """The newest version as it is, and the versions up to it, ascending."""

    latest: Compactions = field(default_factory=Compactions)
    snapshots: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """An entry as one version shows it; ``output_bytes`` is what it had written by then, as far as it was published."""

    file_id: int
    written_ms: int
    entry: Compaction
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What the versions tell of one compaction.

    Args:
        started_ms: when the first claim was stored; ``None`` if that version is not there.
        attempts: claims that were seen.
        running_since: the first sight of it at work.
        last: the last sight of it.
        before_end: its last sight while it was active, if the version after it is there.
        ended_in: that next version: it shows the compaction finished, or not at all.
        ended_before: what had ended by the version of ``before_end``.
        vanished_in: the first version that does not have it any more, if one does not.
    """

    started_ms: int | None = None
    finished_ms: int | None = None
    attempts: int = 0
    running_since: Sighting | None = None
    last: Sighting | None = None
    before_end: Sighting | None = None
    ended_in: Snapshot | None = None
    ended_before: frozenset[Ulid] = frozenset()
    vanished_in: Snapshot | None = None

    @property
    def end_ms(self) -> int | None:
        """When the end was stored, as exactly as that is known: at the latest when it was seen."""
        if self.ended_in is not None:
            return self.ended_in.written_ms
        if self.finished_ms is not None:
            return self.finished_ms
        return self.last.written_ms if self.last is not None else None


def life_of(compaction_id: Ulid, snapshots: Sequence[Snapshot]) -> Life:
    """Follow one compaction through the versions, which ascend by file id."""
    seen = [
        Sighting(snapshot.file_id, snapshot.written_ms, entry, snapshot.output_bytes.get(entry.id, 0))
        for snapshot in snapshots
        if (entry := snapshot.compactions.get(compaction_id)) is not None
    ]
    if not seen:
        return Life()
    working = [sighting for sighting in seen if sighting.entry.status in _STARTED]
    active = [sighting for sighting in seen if sighting.entry.is_active]
    start_is_known = bool(active) and active[0].entry.status not in _STARTED
    after = next((each for each in snapshots if each.file_id == active[-1].file_id + 1), None) if active else None
    return Life(
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


def all_ids(snapshots: Iterable[Snapshot]) -> tuple[Ulid, ...]:
    """Every compaction that some version shows, ascending."""
    return tuple(sorted({entry.id for snapshot in snapshots for entry in snapshot.compactions.entries}))


def _ended_by(file_id: int, snapshots: Iterable[Snapshot]) -> frozenset[Ulid]:
    versions = (snapshot.compactions for snapshot in snapshots if snapshot.file_id == file_id)
    return frozenset(entry.id for each in versions for entry in each.entries if entry.status.is_finished)


def _claims(seen: Sequence[Sighting]) -> int:
    """How often somebody began to work: a claim by another worker, or by the same one after a release."""
    claims, holder = 0, None
    for sighting in seen:
        entry = sighting.entry
        if entry.status is CompactionStatus.RUNNING:
            worker_id = entry.worker.worker_id if entry.worker is not None else ""
            claims += worker_id != holder
            holder = worker_id
        elif entry.status is CompactionStatus.COMPACTED:
            claims = max(claims, 1)
        else:
            holder = None
    return claims
