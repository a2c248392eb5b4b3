"""What a new coordinator makes of the jobs that the old one left (docs/protocol.md 6.4, step 5).

Running and Compacted entries that are still sound stay as they are.  Scheduled entries are judged anew, because the
old coordinator may have had other rules than we have; in SlateDB they fall back to Submitted for that, and lose their
progress with the next step.  Here fall and rise are one write: no crash can come between, and no work is lost.
"""

from dataclasses import replace

from shale.compaction.entries import finished, with_entries, with_entry, with_status
from shale.compaction.validation import Stage, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, DrainSpec, Manifest, Tree
from shale_compactor.states.commit import complete, is_committed, reject
from shale_compactor.states.step import Rejected, Step

_S = CompactionStatus


def plan_startup(manifest: Manifest, compactions: Compactions) -> Step:
    """Finish what is committed, fail what was overtaken, and judge what no worker has claimed.

    The manifest is only read.
    """
    step = Step(manifest=manifest, compactions=compactions)
    for waiting in with_status(compactions, _S.COMPACTED):
        entry = step.compactions.get(waiting.id)
        if entry is not None and entry.status is _S.COMPACTED and is_committed(manifest, entry):
            step = complete(step, entry, manifest)
    return _judge_again(_without_overtaken(step))


def is_overtaken(manifest: Manifest, entry: Compaction) -> bool:
    """Whether a source run was rebuilt under the same id after the job was proposed.

    The coordinator before us may have died before it could fail the job.  A worker's clock that runs ahead can make
    this true needlessly, which costs work and no data.
    """
    tree = manifest.tree_of(entry.spec.segment) or Tree()
    runs = [run for run in tree.compacted if run.id in entry.spec.sorted_runs]
    return any(view.sst.id.ms > entry.id.ms for run in runs for view in run.ssts)


def _without_overtaken(step: Step) -> Step:
    started = [entry for entry in step.compactions.entries if entry.status in (_S.RUNNING, _S.COMPACTED)]
    overtaken = [entry for entry in started if is_overtaken(step.manifest, entry)]
    failures = (Rejected(entry=entry, rule="V12", message="a source was rebuilt under its id") for entry in overtaken)
    return replace(
        step,
        compactions=with_entries(step.compactions, [finished(entry, _S.FAILED) for entry in overtaken]),
        rejected=(*step.rejected, *failures),
    )


def _judge_again(step: Step) -> Step:
    """Keep Scheduled entries that keep the rules: all fall back first, so that the older of two rivals stays."""
    unclaimed = with_status(step.compactions, _S.SCHEDULED)
    fallen = (replace(entry, status=_S.SUBMITTED, worker=None) for entry in unclaimed)
    step = replace(step, compactions=with_entries(step.compactions, fallen))
    for entry in unclaimed:
        if isinstance(entry.spec, DrainSpec):
            continue  # No worker takes a drain; the first tick does it.
        try:
            validate(step.manifest, step.compactions, entry, Stage.INHERITED)
        except InvalidCompaction as error:
            step = reject(step, entry, error)
        else:
            # Progress that was made from a run of the same id which is gone would pass for progress with this one.
            ctx = None if is_overtaken(step.manifest, entry) else entry.ctx
            step = replace(step, compactions=with_entry(step.compactions, replace(entry, worker=None, ctx=ctx)))
    return step
