"""What may be deleted.  Pure: lists and a time in, a plan out; every comparison of ages is strict.

``now_ms`` is sampled when a pass starts, before its first read: a collector that froze between its reads and the
sample would compute a limit that jobs submitted in the meantime do not know about.

Source: docs/protocol.md 8.2 to 8.6; SlateDB slatedb/src/garbage_collector.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.version_list import VersionList
from shale.protocol.versioned import VersionMeta
from shale.protocol.wal_store import WalFile
from shale.types import Compactions, ExternalDb, Manifest, Ulid

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """Sequenced files to delete, ascending by id.  ``boundary`` has to be durable before the first deletion."""

    doomed: VersionList

    @property
    def boundary(self) -> int | None:
        """The highest doomed id; ``None`` if nothing goes."""
        return self.doomed[-1].id if self.doomed else None


def plan_manifest_gc(
    versions: Sequence[VersionMeta], *, pinned: Collection[int], now_ms: int, min_age_ms: int
) -> VersionPlan:
    """Old versions that no checkpoint keeps; the newest one always stays.

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
    """Old versions; the newest one always stays, and nothing pins another."""
    return plan_manifest_gc(versions, pinned=(), now_ms=now_ms, min_age_ms=min_age_ms)


def plan_wal_gc(
    files: Iterable[WalFile],
    *,
    latest: Manifest,
    checkpointed: Iterable[Manifest],
    followed_after: int | None = None,
    fences: bool,
    now_ms: int,
    min_age_ms: int,
) -> tuple[WalFile, ...]:
    """Old WAL files, or old fences, that no replay can need.

    The latest manifest keeps everything from ``replay_after_wal_id`` on, that file included: it proves where the
    log stands.  A checkpoint keeps what its own replay reads.

    Args:
        followed_after: followers of the log need every file above this id (``shale.protocol.followers``).
    """
    retained = [(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id) for manifest in checkpointed]
    return tuple(
        file
        for file in files
        if file.is_fence == fences
        and file.id < latest.replay_after_wal_id
        and not any(first <= file.id < end for first, end in retained)
        and (followed_after is None or file.id <= followed_after)
        and now_ms - file.last_modified_ms > min_age_ms
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """SSTs made before this moment and used by nobody may go.  Milliseconds since 1970; 0: nothing may go.

    Args:
        min_age_ms: the start of the pass minus ``min_age``, which covers clocks that differ.
        compactions_ms: the oldest compaction on record; its outputs are at least as young as its id.
        newest_l0_ms: the newest L0; one that is uploaded but not yet published is at least as young.
    """

    min_age_ms: int
    compactions_ms: int
    newest_l0_ms: int

    @property
    def final_ms(self) -> int:
        """The earliest of the three."""
        return min(self.min_age_ms, self.compactions_ms, self.newest_l0_ms)


def cutoff_for_ssts(latest: Manifest, compactions: Compactions | None, *, now_ms: int, min_age_ms: int) -> Cutoff:
    """The cutoff, from what was read in this order: compactions first, then the latest manifest."""
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
    """SSTs older than the cutoff that no referenced manifest shows."""
    return tuple(file for file in files if file.id.ms < cutoff.final_ms and file.id not in active)


def plan_detach(latest: Manifest, checkpointed: Iterable[Manifest]) -> tuple[ExternalDb, ...]:
    """Parents of a clone that none of its referenced versions reads any more."""
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
