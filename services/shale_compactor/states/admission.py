"""Who may run: validation of submissions and of our own proposals (docs/protocol.md 6.5, 6.8, 6.13).

Drains and trivial moves need no worker, so they are Completed here and now.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from shale.compaction.apply import with_run, without_drained
from shale.compaction.entries import count_using_capacity, with_entry, with_status
from shale.compaction.specs import source_views
from shale.compaction.validation import Stage, check_proposal, validate
from shale.errors import InvalidCompaction
from shale.protocol.rebase import prune_external_ssts
from shale.types import Compaction, Compactions, CompactionSpec, CompactionStatus, DrainSpec, Manifest, Ulid
from shale_compactor.states.commit import complete, reject
from shale_compactor.states.step import Refused, Step
from shale_compactor.states.trivial_move import plan_trivial_move

_S = CompactionStatus


def admit_submitted(manifest: Manifest, compactions: Compactions, *, trivial_moves: bool) -> Step:
    """Schedule, complete or fail every Submitted entry, in the order of their ids."""
    step = Step(manifest=manifest, compactions=compactions)
    for entry in with_status(compactions, _S.SUBMITTED):
        try:
            validate(step.manifest, step.compactions, entry, Stage.SUBMITTED)
        except InvalidCompaction as error:
            step = reject(step, entry, error)
        else:
            step = _admit(step, entry, trivial_moves=trivial_moves)
    return step


def admit_proposals(
    manifest: Manifest,
    compactions: Compactions,
    specs: Iterable[CompactionSpec],
    *,
    new_id: Callable[[], Ulid],
    capacity: int,
    trivial_moves: bool,
) -> Step:
    """Turn proposals of a policy into entries that are Scheduled or Completed from the start.

    They are judged as if they had been submitted, against everything in front of them.  What breaks a rule is
    dropped: nobody waits for its outcome, and the policy would propose it again at every tick.

    Args:
        new_id: called once for each proposal that is sound.
        capacity: entries that may wait for a worker or run, those that do already included.
    """
    step = Step(manifest=manifest, compactions=compactions)
    for spec in specs:
        if count_using_capacity(step.compactions) >= capacity:
            break
        try:
            check_proposal(step.compactions, spec)
        except InvalidCompaction:
            continue  # an active job is at it already
        candidate = Compaction(id=Ulid(0), spec=spec)
        try:
            validate(step.manifest, step.compactions, candidate, Stage.SUBMITTED)
        except InvalidCompaction as error:
            step = replace(step, refused=(*step.refused, Refused(spec=spec, rule=error.rule, message=str(error))))
        else:
            step = _admit(step, replace(candidate, id=new_id()), trivial_moves=trivial_moves, is_ours=True)
    return step


def _admit(step: Step, entry: Compaction, *, trivial_moves: bool, is_ours: bool = False) -> Step:
    step = _completed_at_once(step, entry, trivial_moves=trivial_moves) or _scheduled(step, entry)
    if not is_ours:
        return step
    admitted = step.compactions.get(entry.id)
    assert admitted is not None, "it was inserted a line above"
    return replace(step, proposed=(*step.proposed, admitted))


def _completed_at_once(step: Step, entry: Compaction, *, trivial_moves: bool) -> Step | None:
    if isinstance(entry.spec, DrainSpec):
        return complete(step, entry, prune_external_ssts(without_drained(step.manifest, entry.spec)))
    tree = step.manifest.tree_of(entry.spec.segment)
    assert tree is not None, "validated"
    views = plan_trivial_move(source_views(tree, entry.spec)) if trivial_moves else None
    if views is None:
        return None
    return complete(step, entry, prune_external_ssts(with_run(step.manifest, entry.spec, views)))


def _scheduled(step: Step, entry: Compaction) -> Step:
    # Progress that came with a submission is nobody's we know: it may belong to runs that are gone.
    scheduled = replace(entry, status=_S.SCHEDULED, worker=None, ctx=None)
    return replace(
        step,
        compactions=with_entry(step.compactions, scheduled),
        scheduled=(*step.scheduled, scheduled),
    )
