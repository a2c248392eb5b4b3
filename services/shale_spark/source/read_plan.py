"""The plan of one read task, and the division of a read into tasks.  Pure.

A task gets the part of the manifest that its keys meet, so it reads only data from the store.
"""

import math
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.format.manifest import decode_manifest, encode_manifest
from shale.kernels.rows import Rows
from shale.types import EMPTY_SEQUENCE_TRACKER, KeyRange, Manifest, SstView, Tree
from shale_compactor.execution.subcompactions import Anchor, plan_ranges
from shale_spark.source.filters import KeySet

KEYS_PER_TASK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLease:
    """The checkpoint that protects a read.

    ``lifetime_ms`` is ``None`` for a checkpoint that the caller named, which is not renewed; ``expire_s`` 0 is never.
    """

    checkpoint_id: UUID
    expire_s: int
    lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WalFileRange:
    """WAL files ``first_id`` to ``last_id``, inclusive, whose rows above ``last_l0_seq`` belong to the state."""

    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """One task.

    Args:
        where: the database.
        manifest_bytes: see ``trim_manifest``.
        lease: the checkpoint that protects the state.
        keys: the keys to read.
        prefix: the prefix of all keys, if there is one.
        newer: rows of these keys that are in no SST yet, sorted; or
        wal: the files to read them from.
        merge_operator: its name.
    """

    where: DatabaseLocation
    manifest_bytes: bytes
    lease: ReadLease
    keys: KeySet
    prefix: bytes | None = None
    newer: Rows | None = None
    wal: WalFileRange | None = None
    merge_operator: str | None = None

    @property
    def manifest(self) -> Manifest:
        """The decoded ``manifest_bytes``."""
        return decode_manifest(self.manifest_bytes)

    @property
    def lookups(self) -> tuple[bytes, ...] | None:
        """The keys to look up; ``None`` if a range is scanned."""
        return self.keys.keys

    def encode(self) -> bytes:
        """Encode for ``decode`` in another process of the same release."""
        return pickle.dumps(self)

    @classmethod
    def decode(cls, data: bytes) -> "ReadPlan":
        """Decode what ``encode`` wrote."""
        plan = pickle.loads(data)  # noqa: S301 - our own driver wrote it
        assert isinstance(plan, cls)
        return plan


def trim_manifest(manifest: Manifest, key_range: KeyRange) -> bytes:
    """Encode a manifest with only what a read of this range needs."""
    tree = _trimmed(manifest.tree, key_range)
    segments = tuple(
        replace(segment, tree=trimmed)
        for segment in manifest.segments
        if not (trimmed := _trimmed(segment.tree, key_range.intersect(KeyRange.with_prefix(segment.prefix)))).is_empty
    )
    kept = replace(manifest, tree=tree, segments=segments)
    needed = frozenset(kept.ssts())
    external = tuple(
        replace(each, sst_ids=ids)
        for each in manifest.external_dbs
        if (ids := tuple(sst_id for sst_id in each.sst_ids if sst_id in needed))
    )
    return encode_manifest(
        replace(kept, external_dbs=external, checkpoints=(), sequence_tracker=EMPTY_SEQUENCE_TRACKER)
    )


def views_in(manifest: Manifest, key_range: KeyRange) -> list[tuple[SstView, KeyRange]]:
    """Return the views that show keys of a range, with the part that each can show."""
    found = []
    for prefix, tree in manifest.trees():
        of_tree = key_range.intersect(KeyRange.with_prefix(prefix))
        for view in tree.views():
            part = view.effective_range.intersect(of_tree)
            if not part.is_empty:
                found.append((view, part))
    return found


def plan_key_sets(anchors: Sequence[Anchor], wanted: KeySet, partition_bytes: int) -> list[KeySet]:
    """Divide ``wanted`` at block boundaries into parts of about ``partition_bytes`` of stored data; none is empty.

    Single keys are looked up block by block, so they are divided by number.

    Args:
        anchors: of all views that meet ``wanted``.
        wanted: the keys to read.
        partition_bytes: stored bytes per part.
    """
    if wanted.keys is not None:
        return [
            KeySet(wanted.key_range, wanted.keys[start : start + KEYS_PER_TASK])
            for start in range(0, len(wanted.keys), KEYS_PER_TASK)
        ]
    total = sum(anchor.size_bytes for anchor in anchors)
    count = max(1, math.ceil(total / partition_bytes))
    ranges = plan_ranges(anchors, max_subcompactions=count, largest_input_bytes=0)
    parts = [wanted.within(key_range) for key_range in ranges]
    return [part for part in parts if not part.is_empty]


def _trimmed(tree: Tree, key_range: KeyRange) -> Tree:
    runs = (replace(run, ssts=_meeting(run.ssts, key_range)) for run in tree.compacted)
    return Tree(l0=_meeting(tree.l0, key_range), compacted=tuple(run for run in runs if run.ssts))


def _meeting(views: Iterable[SstView], key_range: KeyRange) -> tuple[SstView, ...]:
    return tuple(view for view in views if not view.effective_range.intersect(key_range).is_empty)
