"""Which objects may be deleted.  Pure: listings and a time in, a plan out; all comparisons of ages are strict.

``now_ms`` is sampled when a pass starts, before its first read.  If the process were suspended between its reads and
the sample, the cutoff would be too late for jobs that were submitted meanwhile.

Source: docs/reference/protocol.md 8.2 to 8.6; SlateDB slatedb/src/garbage_collector.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shale.core.lazy_dataclass import dataclass
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.versioned import VersionList, VersionMeta
from shale.protocol.wal_store import WalFile
from shale.types import Compactions, ExternalDb, Manifest, Ulid

if TYPE_CHECKING:
    from uuid import UUID

    from shale.store.port import ObjectMeta


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """Versions to delete, ascending by id.  ``boundary`` must be durable before the first deletion."""

    candidates: VersionList

    @property
    def boundary(self) -> int | None:
        """The highest id to delete; ``None`` if there is none."""
        return self.candidates[-1].id if self.candidates else None


def plan_manifest_gc(
    versions: Sequence[VersionMeta], *, pinned: Collection[int], now_ms: int, min_age_ms: int
) -> VersionPlan:
    """Plan the deletion of old manifests that no checkpoint names; the newest is always kept.

    Args:
        versions: a listing, ascending by id.
        pinned: ids that the newest version's checkpoints name.
    """
    newest_id = versions[-1].id if versions else 0
    return VersionPlan(
        VersionList(
            version
            for version in versions
            if version.id not in pinned and version.id != newest_id and now_ms - version.last_modified_ms > min_age_ms
        )
    )


def plan_compactions_gc(versions: Sequence[VersionMeta], *, now_ms: int, min_age_ms: int) -> VersionPlan:
    """Plan the deletion of old compactions files; the newest is always kept, and no other can be pinned."""
    return plan_manifest_gc(versions, pinned=(), now_ms=now_ms, min_age_ms=min_age_ms)


RECORD_MIN_AGE_MS = 7 * 86_400_000
"""Minimum age of a deleted record: a week, in which the end of a compaction can be looked up."""


def plan_records_gc(
    records: Iterable[tuple[Ulid, "ObjectMeta"]], *, active: Collection[Ulid], now_ms: int, min_age_ms: int
) -> "tuple[ObjectMeta, ...]":
    """Plan the deletion of records that have not changed for a week.

    Args:
        active: compactions that are active in the newest compactions file.
    """
    age_ms = max(min_age_ms, RECORD_MIN_AGE_MS)
    return tuple(meta for id_, meta in records if id_ not in active and now_ms - meta.last_modified_ms > age_ms)


def plan_wal_gc(
    files: Iterable[WalFile],
    *,
    latest: Manifest,
    checkpointed: Iterable[Manifest],
    oldest_followed_wal_id: int | None = None,
    fences: bool,
    now_ms: int,
    min_age_ms: int,
) -> tuple[WalFile, ...]:
    """Plan the deletion of old WAL files, or of old fences, that no replay can need.

    The latest manifest keeps all files from ``replay_after_wal_id`` on, that file included: it proves the position of
    the log.  A checkpoint keeps the files that its own replay reads.

    Args:
        oldest_followed_wal_id: followers of the log need every file above this id (``shale.protocol.followers``).
    """
    retained = [(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id) for manifest in checkpointed]
    return tuple(
        file
        for file in files
        if file.is_fence == fences
        and file.id < latest.replay_after_wal_id
        and not any(first <= file.id < end for first, end in retained)
        and (oldest_followed_wal_id is None or file.id <= oldest_followed_wal_id)
        and now_ms - file.last_modified_ms > min_age_ms
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """Unused SSTs created before this time may be deleted.  Milliseconds since 1970; 0: none may be deleted.

    Args:
        min_age_ms: start of the pass minus ``min_age``, which covers clock skew.
        compactions_ms: time of the oldest recorded compaction; its outputs have the same or a later time.
        newest_l0_ms: time of the newest L0; an uploaded but unpublished L0 has the same or a later time.
    """

    min_age_ms: int
    compactions_ms: int
    newest_l0_ms: int

    @property
    def final_ms(self) -> int:
        """The earliest of the three."""
        return min(self.min_age_ms, self.compactions_ms, self.newest_l0_ms)


def cutoff_for_ssts(latest: Manifest, compactions: Compactions | None, *, now_ms: int, min_age_ms: int) -> Cutoff:
    """Compute the cutoff; the caller must read the compactions before the latest manifest."""
    entries = compactions.entries if compactions is not None else ()
    return Cutoff(
        min_age_ms=now_ms - min_age_ms,
        compactions_ms=min((entry.id.ms for entry in entries), default=0),
        newest_l0_ms=newest_l0_ms(latest),
    )


class SstFile(NamedTuple):
    """An SST as a listing shows it."""

    id: Ulid
    size: int


def plan_compacted_gc(files: Iterable[SstFile], *, active: Collection[int], cutoff: Cutoff) -> tuple[SstFile, ...]:
    """Plan the deletion of SSTs older than the cutoff that no referenced manifest names."""
    return tuple(file for file in files if file.id.ms < cutoff.final_ms and file.id not in active)


def plan_detach(latest: Manifest, checkpointed: Iterable[Manifest]) -> tuple[ExternalDb, ...]:
    """Return the parents of a clone that none of its referenced versions reads."""
    if not latest.initialized:
        return ()
    still_read: set[UUID] = {
        external.final_checkpoint_id
        for manifest in (latest, *checkpointed)
        for external in manifest.external_dbs
        if external.sst_ids and external.final_checkpoint_id is not None
    }
    return tuple(
        external
        for external in latest.external_dbs
        if external.final_checkpoint_id is not None
        and not external.sst_ids
        and external.final_checkpoint_id not in still_read
    )
