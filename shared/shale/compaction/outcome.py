"""Why a compaction failed, and how one ended that the newest version does not list any more.

Failed entries carry no text, and of the finished entries only the newest stays (docs/protocol.md 6.2, 6.3).  So the
rules are run again on the state in which the end was written.
"""

from collections.abc import Sequence

from shale.compaction.cancel import CANCELLABLE
from shale.compaction.entries import finished, with_entry
from shale.compaction.history import Life
from shale.compaction.specs import RunSource, inputs_of, order_of, sources_of, touched_by
from shale.compaction.validation import Stage, check_sources_exist, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, SstView, TieredSpec

_S = CompactionStatus
UNEXPLAINED = "failed; the coordinator's log has the reason"
CANCELLED = "cancelled"


def why_failed(life: Life, manifest: Manifest | None) -> str:
    """The rule that a Failed entry broke, or who ended it.

    Args:
        manifest: the one that was the newest when the end was stored, if it is known.
    """
    if life.before_end is None or life.ended_in is None or manifest is None:
        return UNEXPLAINED
    before = life.before_end.entry
    broken = _broken_rule(before, life, life.ended_in.compactions, manifest)
    if broken is not None:
        return broken
    return CANCELLED if before.status in CANCELLABLE else UNEXPLAINED


def outcome(life: Life, manifests: Sequence[Manifest]) -> Compaction | None:
    """How a compaction ended that was seen last at work: the finished entry; ``None`` if that cannot be told.

    Args:
        manifests: the newest at the last sight of it and those written since, oldest first.
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
        return None  # versions in between are gone, and with them the step to Compacted
    return finished(entry, _S.FAILED)


def _broken_rule(before: Compaction, life: Life, at: Compactions, manifest: Manifest) -> str | None:
    own = touched_by(before.spec)
    state = with_entry(at, before)
    try:
        if before.status is _S.SUBMITTED:
            validate(manifest, state, before, Stage.SUBMITTED)
        elif before.status is _S.COMPACTED:
            validate(manifest, state, before, Stage.COMPACTED)
        else:
            check_sources_exist(manifest, before.spec)
    except InvalidCompaction as error:
        return str(error)
    if before.status is _S.SUBMITTED:
        return None
    for other in at.entries:
        # Whatever intersects a commit fails in the write that completes it; what had ended before was in nobody's way.
        just_completed = other.status is _S.COMPLETED and other.id not in life.ended_before
        if other.id != before.id and just_completed and own & touched_by(other.spec):
            return f"V12: compaction {other.id}, which shares a source or the destination, was committed first"
    return None


def _holds_result(manifest: Manifest, entry: Compaction, inputs: tuple[SstView, ...] | None) -> bool:
    """Whether what the compaction makes is there, and its sources are not."""
    spec = entry.spec
    tree = manifest.tree_of(spec.segment)
    if tree is None:
        return False
    left = set(sources_of(spec)) & set(order_of(spec.segment, tree))
    if not isinstance(spec, TieredSpec):
        return entry.status is _S.SUBMITTED and not left
    run = next((run for run in tree.compacted if run.id == spec.destination), None)
    if run is None or not left <= {RunSource(spec.destination)}:
        return False
    made = [view.sst.id for view in run.ssts]
    if entry.status is _S.COMPACTED:
        return made == [sst.id for sst in entry.output_ssts]
    # A trivial move goes from Submitted to Completed, and its run is made of the inputs themselves.
    moved = sorted(view.sst.id for view in inputs) if inputs is not None else None
    return entry.status is _S.SUBMITTED and sorted(made) == moved
