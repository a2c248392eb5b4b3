"""What a new coordinator makes of the jobs that the old one left (docs/protocol.md 6.4, step 5)."""

from dataclasses import replace

from shale.compaction.entries import finished, with_entries, with_status
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, Tree
from shale_compactor.states.commit import complete, is_committed
from shale_compactor.states.step import Rejected, Step

_S = CompactionStatus


def plan_startup(manifest: Manifest, compactions: Compactions) -> Step:
    """Finish what is committed, fail what was overtaken, and take back what no worker has claimed.

    The manifest is only read.  Running and Compacted entries that are still sound stay as they are.
    """
    step = Step(manifest=manifest, compactions=compactions)
    for waiting in with_status(compactions, _S.COMPACTED):
        entry = step.compactions.get(waiting.id)
        if entry is not None and entry.status is _S.COMPACTED and is_committed(manifest, entry):
            step = complete(step, entry, manifest)
    overtaken = [entry for entry in step.compactions.entries if _is_overtaken(manifest, entry)]
    unclaimed = with_status(step.compactions, _S.SCHEDULED)
    changed = [finished(entry, _S.FAILED) for entry in overtaken]
    changed += [replace(entry, status=_S.SUBMITTED, worker=None) for entry in unclaimed]
    return replace(
        step,
        compactions=with_entries(step.compactions, changed),
        rejected=(
            *step.rejected,
            *(Rejected(entry=entry, rule="V12", message="a source was rebuilt under its id") for entry in overtaken),
        ),
    )


def _is_overtaken(manifest: Manifest, entry: Compaction) -> bool:
    """Whether a source run was rebuilt under the same id after the job was proposed.

    The coordinator before us may have died before it could fail the job.  A worker's clock that runs ahead can make
    this true needlessly, which costs work and no data.
    """
    if entry.status not in (_S.RUNNING, _S.COMPACTED):
        return False
    tree = manifest.tree_of(entry.spec.segment) or Tree()
    runs = [run for run in tree.compacted if run.id in entry.spec.sorted_runs]
    return any(view.sst.id.ms > entry.id.ms for run in runs for view in run.ssts)
