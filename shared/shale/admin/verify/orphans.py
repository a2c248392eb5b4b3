"""Unreferenced objects, each with a possible reason for its existence.  Pure.

Source: docs/reference/protocol.md 8.2, 8.5.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import field

from shale.admin.verify.listing import ListedSst, Stray
from shale.admin.verify.rules import outputs_of
from shale.core.lazy_dataclass import dataclass
from shale.format.names import sst_key
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.wal_store import WalFile
from shale.types import Compactions, Manifest

ORPHANS_MAX = 10_000
_NOT_KNOWN = "a version of a checkpoint cannot be read and may need it: GC keeps it"
_UNREFERENCED = "it is unreferenced: GC deletes it once it is old enough"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An unreferenced object of ``size`` bytes.

    ``made_ms``: creation time for GC, in milliseconds since 1970; ``None`` if GC currently keeps the object, because
    of ``kept_by``.
    """

    object: str
    size: int
    reason: str
    made_ms: int | None = None
    kept_by: str | None = None


@dataclass(slots=True)
class OrphanTotal:
    """Number and bytes of all orphans with one reason."""

    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Orphans:
    """At most ``ORPHANS_MAX`` orphans; ``totals`` counts all, by reason."""

    listed: list[Orphan] = field(default_factory=list)
    totals: dict[str, OrphanTotal] = field(default_factory=dict)

    def add(self, orphans: Iterable[Orphan]) -> None:
        """Add orphans; beyond the limit, only count them."""
        for orphan in orphans:
            self.count(orphan.reason, 1, orphan.size)
            if len(self.listed) < ORPHANS_MAX:
                self.listed.append(orphan)

    def count(self, reason: str, objects: int, size: int) -> None:
        """Count orphans that are not listed."""
        # Reasons are grouped, so there must be few different ones.
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
    """Yield the SSTs that no manifest references.

    Args:
        listed: all SSTs below the root, listed before the manifests were read.
        referenced: ids in the latest manifest or in one of a checkpoint.
        latest: the newest manifest.
        compactions: the newest compactions; empty if there are none.
        is_all_known: whether the manifests of all checkpoints could be read.
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
            reason, kept_by = _NOT_KNOWN, "a checkpoint whose manifest cannot be read"
        elif sst.id in outputs:
            kept_by = f"compaction {outputs[sst.id].id}"
            reason = f"it is an output of {kept_by}, which is active"
        elif oldest is None:
            reason = "there was no compaction yet, and until then GC keeps all SSTs"
        elif sst.id.ms >= oldest.id.ms:
            reason = "a compaction on record may have written it and not yet committed"
            kept_by = f"compaction {oldest.id}"
        elif sst.id.ms >= newest_ms:
            reason = "the writer may have uploaded it and not yet published"
            kept_by = "the newest L0"
        else:
            reason, made_ms = _UNREFERENCED, sst.id.ms
        yield Orphan(sst_key(root, sst.id), sst.size, reason, made_ms, kept_by)


def wal_orphans(
    files: Iterable[WalFile],
    *,
    latest: Manifest,
    pinned: Iterable[Manifest],
    oldest_followed_wal_id: int | None,
    prefix: str,
    is_all_known: bool = True,
) -> Iterator[Orphan]:
    """Yield WAL files with rows that no replay and no follower needs; fences are not reported.

    Args:
        pinned: the manifests of checkpoints.
        oldest_followed_wal_id: see ``shale.protocol.followers``.
        prefix: key prefix of the files, with its slash.
        is_all_known: see ``sst_orphans``.
    """
    kept = [(each.replay_after_wal_id + 1, each.next_wal_sst_id) for each in pinned]
    for file in files:
        is_kept = (
            file.is_fence
            or file.id >= latest.replay_after_wal_id
            or any(first <= file.id < end for first, end in kept)
            or (oldest_followed_wal_id is not None and file.id > oldest_followed_wal_id)
        )
        if is_kept:
            continue
        key = f"{prefix}{file.id:020}.sst"
        if not is_all_known:
            yield Orphan(key, file.size, _NOT_KNOWN, None, "a checkpoint whose manifest cannot be read")
        else:
            reason = "its rows are in L0: GC deletes it once it is old enough"
            yield Orphan(key, file.size, reason, file.last_modified_ms)


def stray_orphans(strays: Iterable[Stray]) -> Iterator[Orphan]:
    """Yield objects with unknown names, of which GC deletes temporaries only."""
    for stray in strays:
        yield Orphan(stray.key, stray.size, stray_reason(is_staged=stray.is_staged))


def stray_reason(*, is_staged: bool) -> str:
    """Return the reason for an object with an unknown name."""
    if is_staged:
        return "it is a staging file that nothing completes: GC deletes it after a day"
    return "its name is unknown: it is never read or deleted"
