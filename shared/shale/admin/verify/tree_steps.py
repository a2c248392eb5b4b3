"""Compares the trees of a version with those of an earlier one, by summaries that take little memory.  Pure.

A compaction that takes L0s moves the watermark of their tree, and only a flush raises ``last_l0_seq`` (docs/reference/
protocol.md 4.8, 6.9).  So L0s that vanish under the same watermark were lost by damage, and so were rows of the WAL
that a sequence number without a flush hides.
"""

from collections.abc import Iterator, Mapping

from shale.admin.verify.rules import RuleViolation
from shale.core.lazy_dataclass import dataclass
from shale.protocol.checkpoints import replaced_versions
from shale.sst.verify.codes import Code
from shale.types import Manifest, Ulid

_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class TreeSummary:
    """The ids of the L0 views of a tree, its watermark, a hash of its runs, and whether it shows anything."""

    l0: frozenset[Ulid]
    watermark: Ulid | None
    runs: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A version: its trees by prefix, and the manifest without them."""

    id: int
    trees: Mapping[bytes, TreeSummary]
    manifest: Manifest

    @classmethod
    def of(cls, version_id: int, manifest: Manifest, small: Manifest) -> "VersionSummary":
        """Summarize a version; ``small``: the manifest without trees."""
        trees = {
            prefix: TreeSummary(
                frozenset(view.id for view in tree.l0),
                tree.last_compacted_l0_sst_view_id,
                hash(tuple((run.id, view.id) for run in tree.compacted for view in run.ssts)),
                tree.is_empty,
            )
            for prefix, tree in manifest.trees()
        }
        return cls(version_id, trees, small)


@dataclass(frozen=True, slots=True)
class HiddenSeqs:
    """Numbers above ``after``, up to ``up_to``, that the manifest ``key`` counts as flushed without a flush."""

    key: str
    after: int
    up_to: int


def tree_step_problems(older: VersionSummary, newer: VersionSummary) -> Iterator[RuleViolation]:
    """Yield L0s and segments that vanish without a compaction; a restore in place may replace everything."""
    if not older.manifest.initialized or older.id in replaced_versions(newer.manifest):
        return
    for prefix, before in older.trees.items():
        after = newer.trees.get(prefix)
        if after is None:
            # A compaction leaves an empty segment, and only the next version of a writer may be without it.
            if newer.id == older.id + 1 and not before.is_empty:
                what = f"segment {prefix!r} of version {older.id} is gone, and it was not empty"
                yield RuleViolation(Code.L0_VANISHED, what)
            continue
        if after.watermark != before.watermark:
            continue
        lost = sorted(before.l0 - after.l0)
        if lost:
            shown = ", ".join(map(str, lost[:_SHOWN_MAX])) + (" …" if len(lost) > _SHOWN_MAX else "")
            where = f"segment {prefix!r}: " if prefix else ""
            what = f"{where}l0 lacks {shown} of version {older.id}, and last_compacted_l0_sst_view_id has not moved"
            yield RuleViolation(Code.L0_VANISHED, what)


def hidden_seqs(older: VersionSummary, newer: VersionSummary, key: str) -> HiddenSeqs | None:
    """Return the sequence numbers that a version counts as flushed although no tree has changed; ``key``: its key."""
    before, after = older.manifest.last_l0_seq, newer.manifest.last_l0_seq
    is_replaced = not older.manifest.initialized or older.id in replaced_versions(newer.manifest)
    if is_replaced or after <= before or older.trees != newer.trees:
        return None
    return HiddenSeqs(key, int(before), int(after))
