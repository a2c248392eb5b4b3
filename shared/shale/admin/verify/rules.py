"""Invariants of manifests, compactions files and the WAL.  Pure.

Source: docs/reference/format.md 4, docs/reference/protocol.md 3.7, 4.3, 6.2, 6.3, 6.9, 8.5 and Appendix B.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.sequence_tracker import SequenceTracker
from shale.protocol.checkpoints import replaced_versions
from shale.protocol.manifest_invariants import decreases, violations
from shale.sst.verify.codes import Code
from shale.types import (
    Compaction,
    Compactions,
    CompactionStatus,
    KeyRange,
    Manifest,
    SortedRun,
    SstView,
    Subcompaction,
    Tree,
    Ulid,
)

_KEY_SHOWN_MAX = 40


class RuleViolation(NamedTuple):
    """A violated invariant of a version."""

    code: Code
    what: str


def manifest_problems(manifest: Manifest, manifest_id: int, root: str) -> Iterator[RuleViolation]:
    """Yield the violated invariants of version ``manifest_id`` of the database at ``root``."""
    yield from (RuleViolation(Code.INVARIANT, what) for what in violations(manifest))
    for prefix, tree in manifest.trees():
        where = f"segment {prefix!r}: " if prefix else ""
        for code, what in _tree_problems(tree, prefix):
            yield RuleViolation(code, where + what)
    if manifest.segment_extractor_name is not None and not manifest.tree.is_empty:
        yield RuleViolation(Code.SEGMENT_ROWS, "keys are outside of every segment, although there is an extractor")
    yield from _checkpoint_problems(manifest, manifest_id)
    yield from _borrowing_problems(manifest, root)
    try:
        points = SequenceTracker.decode(manifest.sequence_tracker).points
    except CorruptionError as error:
        yield RuleViolation(Code.SEQUENCE_TRACKER, error.message)
    else:
        if points and points[-1][0] > manifest.last_l0_seq and not replaced_versions(manifest):
            what = f"sequence_tracker knows the time of seq {points[-1][0]}, and last_l0_seq is {manifest.last_l0_seq}"
            yield RuleViolation(Code.SEQUENCE_TRACKER, what)


def step_problems(older: Manifest, newer: Manifest, older_id: int) -> Iterator[RuleViolation]:
    """Yield values that decrease from an earlier version; trees are not compared.

    A restore in place may decrease, also one after an interrupted restore, which leaves a half-built version.
    """
    if older_id in replaced_versions(newer) or not older.initialized:
        return
    for name, before, after in decreases(older, newer):
        yield RuleViolation(Code.VERSION_STEP, f"{name} falls from {before} in version {older_id} to {after}")


def _checkpoint_problems(manifest: Manifest, manifest_id: int) -> Iterator[RuleViolation]:
    seen = set()
    for checkpoint in manifest.checkpoints:
        if checkpoint.id in seen:
            yield RuleViolation(Code.CHECKPOINT_DUPLICATE, f"checkpoint {checkpoint.id} is listed twice")
        seen.add(checkpoint.id)
        if checkpoint.manifest_id > manifest_id:
            what = f"checkpoint {checkpoint.id} names manifest {checkpoint.manifest_id}, which is newer than this one"
            yield RuleViolation(Code.CHECKPOINT_AHEAD, what)


def _borrowing_problems(manifest: Manifest, root: str) -> Iterator[RuleViolation]:
    paths: dict[Ulid, str] = {}
    for external in manifest.external_dbs:
        if external.path == root and external.sst_ids:
            yield RuleViolation(Code.SST_COLLISION, "the database borrows from itself")
        for sst_id in external.sst_ids:
            known = paths.setdefault(sst_id, external.path)
            if known != external.path:
                what = f"SST {sst_id} is borrowed both from {known} and from {external.path}"
                yield RuleViolation(Code.SST_COLLISION, what)


def _tree_problems(tree: Tree, prefix: bytes) -> Iterator[RuleViolation]:
    yield from _l0_problems(tree)
    for view in tree.views():
        yield from _view_problems(view, prefix)
    for run in tree.compacted:
        yield from _run_problems(run)


def _l0_problems(tree: Tree) -> Iterator[RuleViolation]:
    for noun, ids in (("view", [view.id for view in tree.l0]), ("SST", [view.sst.id for view in tree.l0])):
        twice = sorted(each for each, count in Counter(ids).items() if count > 1)
        for each in twice:
            yield RuleViolation(Code.L0_DUPLICATE, f"{noun} {each} is listed twice in L0")
        if twice:
            break  # the SSTs of duplicate views are duplicates, too
    mark = tree.last_compacted_l0_sst_view_id
    if mark is not None and any(view.id == mark for view in tree.l0):
        yield RuleViolation(Code.WATERMARK, f"L0 {mark} is marked as compacted, and still listed")
    yield from _l0_disorder(tree.l0)


def _l0_disorder(l0: tuple[SstView, ...]) -> Iterator[RuleViolation]:
    """Check the order of L0s with common keys; disjoint shards of a union may have any order."""
    for place, older in enumerate(l0):
        shown = older.effective_range
        for newer in l0[:place]:
            if newer.sst.id.ms < older.sst.id.ms and not newer.effective_range.intersect(shown).is_empty:
                yield RuleViolation(Code.L0_ORDER, f"L0 {newer.sst.id} stands before the newer {older.sst.id}")
                break


def _view_problems(view: SstView, prefix: bytes) -> Iterator[RuleViolation]:
    first = view.sst.info.first_entry
    # A projection may show only a part of an SST; that part must be in the segment.
    shown = view.effective_range.first_key if view.visible_range is not None else first
    if prefix and shown is not None and not shown.startswith(prefix):
        what = f"view {view.id} begins with {shown[:_KEY_SHOWN_MAX]!r}, outside of its segment"
        yield RuleViolation(Code.SEGMENT_ROWS, what)


def _run_problems(run: SortedRun) -> Iterator[RuleViolation]:
    for left, right in pairwise(run.ssts):
        if not _follows(left.effective_range, right.effective_range):
            yield RuleViolation(Code.RUN_OVERLAP, f"run {run.id}: {right.sst.id} does not start after {left.sst.id}")


def _follows(left: KeyRange, right: KeyRange) -> bool:
    """Return whether ``right`` starts at or after the end of ``left``; both may have versions of one key."""
    if left.end.key is None or right.start.key is None:
        return False
    return left.end.key <= right.start.key


def compactions_problems(compactions: Compactions) -> Iterator[RuleViolation]:
    """Yield the violated invariants of a version."""
    for entry in compactions.entries:
        yield from (
            RuleViolation(Code.COMPACTION_ENTRY, f"compaction {entry.id} {what}") for what in _entry_problems(entry)
        )


def outputs_of(entry: Compaction) -> Iterator[Ulid]:
    """Yield the ids of the published outputs of a compaction."""
    yield from (sst.id for sst in entry.output_ssts)
    for part in entry.ctx.subcompactions if entry.ctx is not None else ():
        yield from (sst.id for sst in part.output_ssts)


def _entry_problems(entry: Compaction) -> Iterator[str]:
    if entry.status is CompactionStatus.RUNNING and entry.worker is None:
        yield "is running, and has no worker"
    if entry.is_active and entry.ctx is not None:
        yield from _range_problems(entry.ctx.subcompactions)


def _range_problems(parts: tuple[Subcompaction, ...]) -> Iterator[str]:
    """Check that the ranges of a compaction cover all keys without overlap."""
    if not parts:
        return
    if parts[0].range.start.key is not None or parts[-1].range.end.key is not None:
        yield "does not compact all keys"
    for left, right in pairwise(parts):
        if left.range.end.key != right.range.start.key:
            yield "has ranges that do not follow one another"
            return


@dataclass(frozen=True, slots=True, order=True)
class MissingWal:
    """Missing files ``first`` to ``last``, which a manifest replays."""

    first: int
    last: int
    code: Code

    @property
    def what(self) -> str:
        """The message of the finding."""
        if self.code is Code.WAL_ENDS_EARLY:
            return f"the log ends before it, and a manifest knows of files up to {self.last}"
        if self.first == self.last:
            return "the file is gone, and replay would need it"
        return f"the files from here up to {self.last} are gone, and replay would need them"


def missing_wal(manifest: Manifest, listed: Sequence[int], *, is_latest: bool) -> Iterator[MissingWal]:
    """Yield the missing files of one manifest.

    Files after the last listed one get a code of their own: an old release may have written ``next_wal_sst_id`` before
    the file.  In a parallel WAL, files that no manifest names may be missing: they were in flight, or are still.

    Args:
        listed: existing ids, ascending.
        is_latest: the manifest is the newest, whose replay continues beyond ``next_wal_sst_id``.
    """
    start, end = int(manifest.replay_after_wal_id) + 1, int(manifest.next_wal_sst_id)
    if is_latest and listed and not manifest.has_parallel_wal:
        end = max(end, listed[-1] + 1)
    known = (listed[place] for place in range(bisect_left(listed, start), bisect_left(listed, end)))
    for first, last in holes(chain(known, (end,)), start):
        code = Code.WAL_ENDS_EARLY if listed and listed[-1] < first else Code.WAL_MISSING
        yield MissingWal(first, last, code)


def all_missing(counted: Iterable[tuple[Manifest, bool]], listed: Sequence[int]) -> tuple[MissingWal, ...]:
    """Return the missing files of all manifests; of holes with the same start, the longest."""
    found: dict[int, MissingWal] = {}
    for manifest, is_latest in counted:
        for missing in missing_wal(manifest, listed, is_latest=is_latest):
            known = found.get(missing.first)
            if known is None or (missing.code is Code.WAL_MISSING, missing.last) > (
                known.code is Code.WAL_MISSING,
                known.last,
            ):
                found[missing.first] = missing
    return tuple(sorted(found.values()))


def holes(ids: Iterable[int], start: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last id of each hole between ``start`` and the last id.

    Args:
        ids: existing ids, ascending.
    """
    for left, right in pairwise(chain((start - 1,), (each for each in ids if each >= start))):
        if right > left + 1:
            yield left + 1, right - 1
