"""Validate the jobs of the previous coordinator (docs/reference/protocol.md 6.4, step 5).

Valid Running and Compacted entries stay unchanged.  Scheduled entries are validated again, because the previous
coordinator may have had other rules.  SlateDB sets them back to Submitted and loses their progress in the next step.
Here both steps are one write, so no crash can come between and no progress is lost.
"""

from collections.abc import Collection
from dataclasses import replace

from shale.compaction.entries import finished, with_entries, with_entry, with_status
from shale.compaction.validation import ValidationStage, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, DrainSpec, Manifest, Tree
from shale_compactor.planning.commit import complete, is_committed, reject
from shale_compactor.planning.step import PlanningStep, Rejected

_S = CompactionStatus


def plan_startup(manifest: Manifest, compactions: Compactions, gone_workers: Collection[str] = ()) -> PlanningStep:
    """Complete committed entries, fail overtaken ones, and validate those that no worker has claimed.

    The manifest is not changed.

    Args:
        gone_workers: workers that ended with the processes of writers that were replaced.  Their jobs are reclaimed at
            once; as after any reclaim, they can store nothing more for them if they are still alive.
    """
    step = PlanningStep(manifest=manifest, compactions=compactions)
    for waiting in with_status(compactions, _S.COMPACTED):
        entry = step.compactions.get(waiting.id)
        if entry is not None and entry.status is _S.COMPACTED and is_committed(manifest, entry):
            step = complete(step, entry, manifest)
    return _revalidate(_reclaimed(_without_overtaken(step), gone_workers))


def is_overtaken(manifest: Manifest, entry: Compaction) -> bool:
    """Return whether a source run was rewritten under the same id after the job was created.

    The previous coordinator may have died before it could fail the job.  A worker's clock that is ahead can cause a
    false positive, which costs work and no data.
    """
    tree = manifest.tree_of(entry.spec.segment) or Tree()
    runs = [run for run in tree.compacted if run.id in entry.spec.sorted_runs]
    return any(view.sst.id.ms > entry.id.ms for run in runs for view in run.ssts)


def _without_overtaken(step: PlanningStep) -> PlanningStep:
    started = [entry for entry in step.compactions.entries if entry.status in (_S.RUNNING, _S.COMPACTED)]
    overtaken = [entry for entry in started if is_overtaken(step.manifest, entry)]
    failures = (Rejected(entry=entry, rule="V12", message="a source was rebuilt under its id") for entry in overtaken)
    return replace(
        step,
        compactions=with_entries(step.compactions, [finished(entry, _S.FAILED) for entry in overtaken]),
        rejected=(*step.rejected, *failures),
    )


def _reclaimed(step: PlanningStep, worker_ids: Collection[str]) -> PlanningStep:
    running = with_status(step.compactions, _S.RUNNING)
    lost = [entry for entry in running if entry.worker is not None and entry.worker.worker_id in worker_ids]
    free = [replace(entry, status=_S.SCHEDULED, worker=None) for entry in lost]
    return replace(step, compactions=with_entries(step.compactions, free), reclaimed=(*step.reclaimed, *lost))


def _revalidate(step: PlanningStep) -> PlanningStep:
    """Keep valid Scheduled entries.  All become Submitted first, so that the older of two conflicting ones is kept."""
    unclaimed = with_status(step.compactions, _S.SCHEDULED)
    fallen = (replace(entry, status=_S.SUBMITTED, worker=None) for entry in unclaimed)
    step = replace(step, compactions=with_entries(step.compactions, fallen))
    for entry in unclaimed:
        if isinstance(entry.spec, DrainSpec):
            continue  # The first round completes a drain; workers do not claim it.
        try:
            validate(step.manifest, step.compactions, entry, ValidationStage.INHERITED)
        except InvalidCompaction as error:
            step = reject(step, entry, error)
        else:
            # Progress made from an earlier run of the same id must not be reused.
            ctx = None if is_overtaken(step.manifest, entry) else entry.ctx
            step = replace(step, compactions=with_entry(step.compactions, replace(entry, worker=None, ctx=ctx)))
    return step
