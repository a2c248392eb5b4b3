"""Objects that nobody refers to, each with the reason why it may be there.  Pure.

Source: docs/protocol.md 8.2, 8.5.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.wal_store import WalFile
from shale.types import Compaction, Compactions, Manifest, Ulid


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object of ``size`` bytes below the database that nothing needs, as far as the metadata tell."""

    object: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class ListedSst:
    """An SST as a listing shows it."""

    id: Ulid
    key: str
    size: int


def sst_orphans(
    listed: Iterable[ListedSst], *, referenced: Collection[Ulid], latest: Manifest, compactions: Compactions | None
) -> Iterator[Orphan]:
    """SSTs that no manifest shows.

    Args:
        listed: all below the root, listed before the manifests were read.
        referenced: ids that the latest manifest or one that a checkpoint keeps shows.
        latest: the newest manifest.
        compactions: the newest compactions file.
    """
    entries = compactions.entries if compactions is not None else ()
    outputs = {sst_id: entry for entry in entries if entry.is_active for sst_id in outputs_of(entry)}
    oldest_ms = min((entry.id.ms for entry in entries), default=None)
    newest_ms = newest_l0_ms(latest)
    for sst in listed:
        if sst.id in referenced:
            continue
        if sst.id in outputs:
            reason = f"it is an output of compaction {outputs[sst.id].id}, which is under way"
        elif oldest_ms is None:
            reason = "nothing was ever compacted, and until then the collector takes no SST"
        elif sst.id.ms >= oldest_ms:
            reason = "a compaction on record may have written it and not yet committed"
        elif sst.id.ms >= newest_ms:
            reason = "the writer may have uploaded it and not yet published"
        else:
            reason = "nobody needs it: the collector takes it once it is old enough"
        yield Orphan(sst.key, sst.size, reason)


def wal_orphans(
    files: Iterable[WalFile], *, latest: Manifest, pinned: Iterable[Manifest], followed_after: int | None, prefix: str
) -> Iterator[Orphan]:
    """WAL files with rows that no replay and no follower needs; fences are kept for ever.

    Args:
        pinned: the manifests of checkpoints.
        followed_after: see ``shale.protocol.followers``.
        prefix: the folder of the files, with its slash.
    """
    kept = [(each.replay_after_wal_id + 1, each.next_wal_sst_id) for each in pinned]
    for file in files:
        is_kept = (
            file.is_fence
            or file.id >= latest.replay_after_wal_id
            or any(first <= file.id < end for first, end in kept)
            or (followed_after is not None and file.id > followed_after)
        )
        if not is_kept:
            reason = "its rows are in L0: the collector takes it once it is old enough"
            yield Orphan(f"{prefix}{file.id:020}.sst", file.size, reason)


def outputs_of(entry: Compaction) -> Iterator[Ulid]:
    """What a compaction has written so far, as far as it told."""
    yield from (sst.id for sst in entry.output_ssts)
    for part in entry.ctx.subcompactions if entry.ctx is not None else ():
        yield from (sst.id for sst in part.output_ssts)
