"""Commit results to the manifest (docs/reference/protocol.md 6.10).

Pure functions of both values; the coordinator writes the manifest first and the compactions after it.  Each commit
fails all other compactions that share a source or the destination, in the same step.  Run ids are reused, so a stale
result could otherwise pass for a result of the new run.
"""

from dataclasses import replace

from shale.compaction.apply import with_run, without_drained
from shale.compaction.entries import finished, with_entries, with_entry, with_status
from shale.compaction.specs import SortedRunSource, exclude_each_other, order_of, sources_of
from shale.compaction.validation import ValidationStage, validate
from shale.errors import InvalidCompaction
from shale.protocol.rebase import prune_external_ssts
from shale.types import Compaction, Compactions, CompactionStatus, DrainSpec, Manifest, SstView, TieredSpec
from shale_compactor.planning.step import PlanningStep, Rejected

_S = CompactionStatus
_SWEPT = (_S.SCHEDULED, _S.RUNNING, _S.COMPACTED)


def commit_compacted(manifest: Manifest, compactions: Compactions) -> PlanningStep:
    """Commit or fail each Compacted entry, in order of ids."""
    step = PlanningStep(manifest=manifest, compactions=compactions)
    for waiting in with_status(compactions, _S.COMPACTED):
        entry = step.compactions.get(waiting.id)
        if entry is not None and entry.status is _S.COMPACTED:  # not failed by an earlier commit
            step = _commit_one(step, entry)
    return step


def is_committed(manifest: Manifest, entry: Compaction) -> bool:
    """Return whether the manifest already has the result: the last coordinator died between its two writes."""
    spec = entry.spec
    tree = manifest.tree_of(spec.segment)
    if tree is None or not isinstance(spec, TieredSpec):
        return False
    run = next((run for run in tree.compacted if run.id == spec.destination), None)
    if run is None or [view.sst.id for view in run.ssts] != [sst.id for sst in entry.output_ssts]:
        return False
    left = set(sources_of(spec)) & set(order_of(spec.segment, tree))
    return left <= {SortedRunSource(spec.destination)}


def complete(step: PlanningStep, entry: Compaction, manifest: Manifest) -> PlanningStep:
    """Mark an entry Completed and fail all entries that share a source or the destination."""
    swept = [
        other
        for other in step.compactions.entries
        if other.id != entry.id and other.status in _SWEPT and exclude_each_other(entry.spec, other.spec)
    ]
    changed = [finished(entry, _S.COMPLETED), *(finished(other, _S.FAILED) for other in swept)]
    return replace(
        step,
        manifest=manifest,
        compactions=with_entries(step.compactions, changed),
        committed=(*step.committed, entry),
        rejected=(
            *step.rejected,
            *(Rejected(entry=other, rule="V12", message=f"{entry.id} was committed first") for other in swept),
        ),
    )


def _commit_one(step: PlanningStep, entry: Compaction) -> PlanningStep:
    if is_committed(step.manifest, entry):
        return complete(step, entry, step.manifest)
    try:
        validate(step.manifest, step.compactions, entry, ValidationStage.COMPACTED)
    except InvalidCompaction as error:
        return reject(step, entry, error)
    if isinstance(entry.spec, DrainSpec):
        # Drains are never executed by workers, but a stored Compacted drain must not block other commits.
        return complete(step, entry, prune_external_ssts(without_drained(step.manifest, entry.spec)))
    views = tuple(SstView.identity(sst) for sst in entry.output_ssts)
    return complete(step, entry, prune_external_ssts(with_run(step.manifest, entry.spec, views)))


def reject(step: PlanningStep, entry: Compaction, error: InvalidCompaction) -> PlanningStep:
    """Mark an entry Failed."""
    return replace(
        step,
        compactions=with_entry(step.compactions, finished(entry, _S.FAILED)),
        rejected=(*step.rejected, Rejected(entry=entry, rule=error.rule, message=str(error))),
    )
