"""Admit submissions and proposals of the scheduler (docs/reference/protocol.md 6.5, 6.8, 6.13).

Drains and trivial moves need no worker, so they are Completed at once.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from shale.compaction.apply import with_run, without_drained
from shale.compaction.entries import count_claimable, count_using_capacity, with_entry, with_status
from shale.compaction.specs import source_views
from shale.compaction.validation import ValidationStage, check_proposal, validate
from shale.errors import InvalidCompaction
from shale.protocol.rebase import prune_external_ssts
from shale.types import (
    Compaction,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    DrainSpec,
    KeyRange,
    Manifest,
    SstView,
    Ulid,
)
from shale_compactor.planning.commit import complete, reject
from shale_compactor.planning.step import PlanningStep, RefusedProposal


def plan_trivial_move(views: tuple[SstView, ...]) -> tuple[SstView, ...] | None:
    """Order the views by key if their effective ranges are disjoint; return ``None`` if two overlap.

    Views with an empty effective range come first; they cannot overlap any other.
    """
    ranked = sorted(views, key=lambda view: _start(view.effective_range))
    shown = [view.effective_range for view in ranked if not view.effective_range.is_empty]
    for left, right in itertools.pairwise(shown):
        if not left.intersect(right).is_empty:
            return None
    return tuple(ranked)


def _start(keys: KeyRange) -> tuple[bool, bytes]:
    if keys.is_empty:
        return (False, b"")
    first = keys.first_key
    return (True, b"" if first is None else first)


_S = CompactionStatus


def admit_submitted(
    manifest: Manifest, compactions: Compactions, *, trivial_moves: bool, capacity: int | None = None
) -> PlanningStep:
    """Schedule, complete or fail Submitted entries, in order of ids.

    A valid one that needs a worker waits while there is no capacity, and the later ones wait after it: they may share
    its sources.

    Args:
        capacity: maximum of Scheduled and Running entries; ``None``: no limit.
    """
    step = PlanningStep(manifest=manifest, compactions=compactions)
    has_to_wait = False
    for entry in with_status(compactions, _S.SUBMITTED):
        try:
            validate(step.manifest, step.compactions, entry, ValidationStage.SUBMITTED)
        except InvalidCompaction as error:
            step = reject(step, entry, error)
            continue
        if has_to_wait:
            continue
        done = _completed_at_once(step, entry, trivial_moves=trivial_moves)
        has_to_wait = done is None and capacity is not None and count_claimable(step.compactions) >= capacity
        if not has_to_wait:
            step = done or _scheduled(step, entry)
    return step


def admit_proposals(
    manifest: Manifest,
    compactions: Compactions,
    specs: Iterable[CompactionSpec],
    *,
    new_id: Callable[[], Ulid],
    capacity: int,
    trivial_moves: bool,
) -> PlanningStep:
    """Turn proposals of the scheduler into Scheduled or Completed entries.

    A proposal is validated like a submission, after all entries before it.  One that breaks a rule is dropped and not
    stored as Failed: the scheduler would propose it again in each round.

    Args:
        new_id: called once for each valid proposal.
        capacity: maximum of waiting and running entries, existing ones included.
    """
    step = PlanningStep(manifest=manifest, compactions=compactions)
    for spec in specs:
        if count_using_capacity(step.compactions) >= capacity:
            break
        try:
            check_proposal(step.compactions, spec)
        except InvalidCompaction:
            continue  # an active job does the same
        candidate = Compaction(id=Ulid(0), spec=spec)
        try:
            validate(step.manifest, step.compactions, candidate, ValidationStage.SUBMITTED)
        except InvalidCompaction as error:
            step = replace(
                step, refused=(*step.refused, RefusedProposal(spec=spec, rule=error.rule, message=str(error)))
            )
        else:
            step = _propose(step, replace(candidate, id=new_id()), trivial_moves=trivial_moves)
    return step


def _propose(step: PlanningStep, entry: Compaction, *, trivial_moves: bool) -> PlanningStep:
    step = _completed_at_once(step, entry, trivial_moves=trivial_moves) or _scheduled(step, entry)
    admitted = step.compactions.get(entry.id)
    assert admitted is not None, "it was inserted a line above"
    return replace(step, proposed=(*step.proposed, admitted))


def _completed_at_once(step: PlanningStep, entry: Compaction, *, trivial_moves: bool) -> PlanningStep | None:
    if isinstance(entry.spec, DrainSpec):
        return complete(step, entry, prune_external_ssts(without_drained(step.manifest, entry.spec)))
    tree = step.manifest.tree_of(entry.spec.segment)
    assert tree is not None, "validated"
    views = plan_trivial_move(source_views(tree, entry.spec)) if trivial_moves else None
    if views is None:
        return None
    return complete(step, entry, prune_external_ssts(with_run(step.manifest, entry.spec, views)))


def _scheduled(step: PlanningStep, entry: Compaction) -> PlanningStep:
    # Progress in a submission is of unknown origin: it may belong to runs that are gone.
    scheduled = replace(entry, status=_S.SCHEDULED, worker=None, ctx=None)
    return replace(
        step,
        compactions=with_entry(step.compactions, scheduled),
        scheduled=(*step.scheduled, scheduled),
    )
