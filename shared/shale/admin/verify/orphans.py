"""Objects that nobody refers to, each with the reason why it may be there.  Pure.

Source: docs/protocol.md 8.2, 8.5.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from shale.admin.verify.compaction_rules import outputs_of
from shale.admin.verify.listing import ListedSst, Stray
from shale.format.names import sst_key
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.wal_store import WalFile
from shale.types import Compactions, Manifest

ORPHANS_MAX = 10_000
_NOT_KNOWN = "a version that a checkpoint keeps cannot be read: it may be what that needs, and no collector takes it"
_NOBODYS = "nobody needs it: the collector takes it once it is old enough"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object of ``size`` bytes below the database that nothing needs, as far as the metadata tell.

    ``made_ms``: from when a collector counts its age, in milliseconds since 1970; ``None`` if it does not take it as
    things stand, and ``kept_by`` then says because of what.
    """

    object: str
    size: int
    reason: str
    made_ms: int | None = None
    kept_by: str | None = None


@dataclass(slots=True)
class OrphanTotal:
    """Of all with one reason."""

    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Orphans:
    """At most ``ORPHANS_MAX`` are listed; ``totals`` counts all, by reason."""

    listed: list[Orphan] = field(default_factory=list)
    totals: dict[str, OrphanTotal] = field(default_factory=dict)

    def add(self, orphans: Iterable[Orphan]) -> None:
        """Count some more."""
        for orphan in orphans:
            self.count(orphan.reason, 1, orphan.size)
            if len(self.listed) < ORPHANS_MAX:
                self.listed.append(orphan)

    def count(self, reason: str, objects: int, size: int) -> None:
        """Count some that are not listed one by one."""
        # Reasons name what they are about; totals must stay few.
        total = self.totals.setdefault(reason, OrphanTotal())
        total.objects += objects
        total.bytes += size


def sst_orphans(
    listed: Iterable[ListedSst],
    *,
    root: str,
    referenced: Collection[int],
    latest: Manifest,
    compactions: Compactions,
    is_all_known: bool = True,
) -> Iterator[Orphan]:
    """SSTs that no manifest shows.

    Args:
        listed: all below the root, listed before the manifests were read.
        referenced: ids that the latest manifest or one that a checkpoint keeps shows.
        latest: the newest manifest.
        compactions: the newest compactions file, an empty one if there is none.
        is_all_known: whether every version that a checkpoint keeps could be read.
    """
    entries = compactions.entries
    outputs = {sst_id: entry for entry in entries if entry.is_active for sst_id in outputs_of(entry)}
    oldest = min(entries, key=lambda entry: entry.id.ms, default=None)
    newest_ms = newest_l0_ms(latest)
    for sst in listed:
        if sst.id in referenced:
            continue
        made_ms, kept_by = None, None
        if not is_all_known:
            reason, kept_by = _NOT_KNOWN, "a checkpoint whose version cannot be read"
        elif sst.id in outputs:
            kept_by = f"compaction {outputs[sst.id].id}"
            reason = f"it is an output of {kept_by}, which is under way"
        elif oldest is None:
            reason = "nothing was ever compacted, and until then the collector takes no SST"
        elif sst.id.ms >= oldest.id.ms:
            reason = "a compaction on record may have written it and not yet committed"
            kept_by = f"compaction {oldest.id}"
        elif sst.id.ms >= newest_ms:
            reason = "the writer may have uploaded it and not yet published"
            kept_by = "the newest L0"
        else:
            reason, made_ms = _NOBODYS, sst.id.ms
        yield Orphan(sst_key(root, sst.id), sst.size, reason, made_ms, kept_by)


def wal_orphans(
    files: Iterable[WalFile],
    *,
    latest: Manifest,
    pinned: Iterable[Manifest],
    followed_after: int | None,
    prefix: str,
    is_all_known: bool = True,
) -> Iterator[Orphan]:
    """WAL files with rows that no replay and no follower needs; fences are kept for ever.

    Args:
        pinned: the manifests of checkpoints.
        followed_after: see ``shale.protocol.followers``.
        prefix: the folder of the files, with its slash.
        is_all_known: see ``sst_orphans``.
    """
    kept = [(each.replay_after_wal_id + 1, each.next_wal_sst_id) for each in pinned]
    for file in files:
        is_kept = (
            file.is_fence
            or file.id >= latest.replay_after_wal_id
            or any(first <= file.id < end for first, end in kept)
            or (followed_after is not None and file.id > followed_after)
        )
        if is_kept:
            continue
        key = f"{prefix}{file.id:020}.sst"
        if not is_all_known:
            yield Orphan(key, file.size, _NOT_KNOWN, None, "a checkpoint whose version cannot be read")
        else:
            reason = "its rows are in L0: the collector takes it once it is old enough"
            yield Orphan(key, file.size, reason, file.last_modified_ms)


def stray_orphans(strays: Iterable[Stray]) -> Iterator[Orphan]:
    """Objects with names that nobody here writes; no collector takes them."""
    for stray in strays:
        yield Orphan(stray.key, stray.size, stray_reason(is_staged=stray.is_staged))


def stray_reason(*, is_staged: bool) -> str:
    """Why nobody needs such an object."""
    if is_staged:
        return "it was left by a writer to a directory that died: nobody reads or deletes it"
    return "its name is none of a database's: nobody reads or deletes it"
