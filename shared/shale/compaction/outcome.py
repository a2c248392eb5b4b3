"""Why a compaction failed, and how one ended that the newest version does not list any more.

Failed entries have no error text, and only the newest finished entry is kept (docs/reference/protocol.md 6.2, 6.3).
So the rules are checked again on the state in which the end was written.
"""

from collections.abc import Sequence

from shale.compaction.cancel import CANCELLABLE
from shale.compaction.entries import finished, with_entry
from shale.compaction.history import CompactionLifecycle
from shale.compaction.specs import SortedRunSource, inputs_of, order_of, sources_of, touched_by
from shale.compaction.validation import ValidationStage, check_sources_exist, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, SstView, TieredSpec

_S = CompactionStatus
UNEXPLAINED = "failed; the log of the worker or the coordinator has the reason"
CANCELLED = "cancelled"


def failure_reason(life: CompactionLifecycle, manifest: Manifest | None) -> str:
    """Return the rule that a Failed entry broke, or that it was cancelled.

    Args:
        manifest: the newest manifest when the end was stored; ``None`` if not known.
    """
    if life.before_end is None or life.ended_in is None or manifest is None:
        return UNEXPLAINED
    before = life.before_end.entry
    broken = _broken_rule(before, life, life.ended_in.compactions, manifest)
    if broken is not None:
        return broken
    ended = life.ended_in.compactions.get(before.id)
    is_of_worker = ended is not None and ended.worker is not None
    return CANCELLED if before.status in CANCELLABLE and not is_of_worker else UNEXPLAINED


def outcome(life: CompactionLifecycle, manifests: Sequence[Manifest]) -> Compaction | None:
    """Return the finished entry of a compaction that was last observed as active; ``None`` if not known.

    Args:
        manifests: the newest one at the last observation, and those written since, oldest first.
    """
    last, gone = life.last, life.vanished_in
    if last is None or gone is None:
        return None
    entry = last.entry
    if entry.status.is_finished:
        return entry
    found = (inputs_of(manifest, entry.spec) for manifest in manifests)
    inputs = next((views for views in found if views is not None), None)
    if any(_holds_result(manifest, entry, inputs) for manifest in manifests):
        return finished(entry, _S.COMPLETED)
    if gone.file_id != last.file_id + 1 and entry.status is not _S.COMPACTED:
        return None  # the version in which it became Compacted is not retained
    return finished(entry, _S.FAILED)


def _broken_rule(before: Compaction, life: CompactionLifecycle, at: Compactions, manifest: Manifest) -> str | None:
    own = touched_by(before.spec)
    state = with_entry(at, before)
    try:
        if before.status is _S.SUBMITTED:
            validate(manifest, state, before, ValidationStage.SUBMITTED)
        elif before.status is _S.COMPACTED:
            validate(manifest, state, before, ValidationStage.COMPACTED)
        else:
            check_sources_exist(manifest, before.spec)
    except InvalidCompaction as error:
        return str(error)
    if before.status is _S.SUBMITTED:
        return None
    for other in at.entries:
        # Entries that conflict with a commit fail in the same write.  Compactions that ended earlier do not conflict.
        just_completed = other.status is _S.COMPLETED and other.id not in life.ended_before
        if other.id != before.id and just_completed and own & touched_by(other.spec):
            return f"V12: compaction {other.id}, which shares a source or the destination, was committed first"
    return None


def _holds_result(manifest: Manifest, entry: Compaction, inputs: tuple[SstView, ...] | None) -> bool:
    """Return whether the manifest has the result of the compaction and no longer has its sources."""
    spec = entry.spec
    tree = manifest.tree_of(spec.segment)
    if tree is None:
        return False
    left = set(sources_of(spec)) & set(order_of(spec.segment, tree))
    if not isinstance(spec, TieredSpec):
        return entry.status is _S.SUBMITTED and not left
    run = next((run for run in tree.compacted if run.id == spec.destination), None)
    if run is None or not left <= {SortedRunSource(spec.destination)}:
        return False
    made = [view.sst.id for view in run.ssts]
    if entry.status is _S.COMPACTED:
        return made == [sst.id for sst in entry.output_ssts]
    # A trivial move goes from Submitted to Completed, and its run consists of the inputs.
    moved = sorted(view.sst.id for view in inputs) if inputs is not None else None
    return entry.status is _S.SUBMITTED and sorted(made) == moved
