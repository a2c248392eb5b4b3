"""A whole round as one decision (docs/reference/protocol.md 6.6): each part uses the result of the one before it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shale.compaction.entries import with_entry
from shale.compaction.policies.size_tiered import SizeTiered
from shale.types import CompactionSpec, WorkerClaim
from shale_compactor.planning.reclaim import observe_heartbeats
from shale_compactor.planning.round import Policy, plan_commit_round, plan_round
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, sst, statuses, tree, ulid


@dataclass
class Wishes:
    """A policy with fixed proposals."""

    specs: Sequence[CompactionSpec]

    def plan(self, _manifest, _compactions):
        return self.specs


def ids():
    numbers = itertools.count(900)
    return lambda: ulid(next(numbers))


def policy(scheduler=None, capacity=4, trivial_moves=False):
    return Policy(scheduler=scheduler or SizeTiered(), capacity=capacity, trivial_moves=trivial_moves)


def test_a_commit_makes_room_for_the_next_merge_in_the_same_round():
    """Runs 3, 2 and 1 wait for a fourth, which the commit brings."""
    state = manifest(tree((4,), (3, 2, 1)))
    value = compactions(entry(50, spec((4,), to=4), S.COMPACTED, output_ssts=(sst(51),)))
    step = plan_commit_round(state, value, policy(capacity=1), ids())
    assert statuses(step.compactions) == {50: S.COMPLETED, 900: S.SCHEDULED}
    assert step.compactions.entries[-1].spec == spec(runs=(4, 3, 2, 1), to=1)
    assert [found.id.ms for found in step.committed] == [50]
    assert [found.id.ms for found in step.proposed] == [900]


def test_a_proposal_never_wins_against_a_submission():
    state = manifest(tree((), (3, 2, 1)))
    value = compactions(entry(50, spec(runs=(2, 1), to=1)))
    step = plan_commit_round(state, value, policy(Wishes((spec(runs=(3, 2), to=2), spec(runs=(3,), to=3)))), ids())
    assert statuses(step.compactions) == {50: S.SCHEDULED, 900: S.SCHEDULED}
    assert [(refusal.spec, refusal.rule) for refusal in step.refused] == [(spec(runs=(3, 2), to=2), "V12")]
    assert step.rejected == ()


def test_proposals_that_break_a_rule_never_become_entries():
    state = manifest(tree((3, 2, 1)))
    step = plan_commit_round(state, compactions(), policy(Wishes((spec((3, 2), to=7),))), ids())
    assert step.compactions.entries == ()
    assert [refusal.rule for refusal in step.refused] == ["V7"]


def test_capacity_counts_what_waits_and_runs_and_not_what_is_done_at_once():
    state = manifest(tree((), (5, 4, 3)), s=tree((2,), (1,)))
    wishes = Wishes((drain(b"s", (2,), (1,)), *(spec(runs=(n,), to=n) for n in (5, 4, 3))))
    step = plan_commit_round(state, compactions(), policy(wishes, capacity=2), ids())
    assert statuses(step.compactions) == {900: S.COMPLETED, 901: S.SCHEDULED, 902: S.SCHEDULED}
    assert step.manifest.tree_of(b"s").compacted == ()


def test_a_proposed_trivial_move_is_completed_at_once():
    state = manifest(tree((), (2,)))
    step = plan_commit_round(state, compactions(), policy(Wishes((spec(runs=(2,), to=2),)), trivial_moves=True), ids())
    assert statuses(step.compactions) == {900: S.COMPLETED}
    assert [found.status for found in step.proposed] == [S.COMPLETED]


def test_nothing_to_do_changes_nothing():
    state, value = manifest(tree((1,), (3, 2))), compactions(entry(50, spec(runs=(2,), to=2), S.RUNNING))
    step = plan_round(state, value, policy(), ids(), seen=observe_heartbeats({}, value, 0.0), now_s=1.0, timeout_s=30.0)
    assert step.manifest is state
    assert step.compactions == value


def test_a_job_that_was_taken_back_still_uses_capacity():
    state = manifest(tree((4, 3, 2, 1), (9,)))
    job = entry(50, spec(runs=(9,), to=9), S.RUNNING, worker=WorkerClaim(worker_id="w", last_heartbeat_ms=1))
    value = compactions(job)
    seen = observe_heartbeats({}, value, 0.0)
    step = plan_round(state, value, policy(capacity=1), ids(), seen=seen, now_s=31.0, timeout_s=30.0)
    assert step.reclaimed == (job,)
    assert statuses(step.compactions) == {50: S.SCHEDULED}


def test_submissions_wait_while_all_workers_are_busy():
    """They keep their place: a proposal does not overtake them."""
    state = manifest(tree((), (4, 3, 2, 1)))
    value = compactions(
        entry(50, spec(runs=(4,), to=4), S.RUNNING),
        entry(51, spec(runs=(3,), to=3)),
        entry(52, spec(runs=(9,), to=9)),
        entry(53, spec(runs=(2,), to=2)),
    )
    step = plan_commit_round(state, value, policy(Wishes((spec(runs=(1,), to=1),)), capacity=1), ids())
    assert statuses(step.compactions) == {50: S.RUNNING, 51: S.SUBMITTED, 52: S.FAILED, 53: S.SUBMITTED}
    done = with_entry(step.compactions, entry(50, spec(runs=(4,), to=4), S.FAILED))
    step = plan_commit_round(state, done, policy(Wishes((spec(runs=(1,), to=1),)), capacity=1), ids())
    assert statuses(step.compactions)[51] is S.SCHEDULED
    assert statuses(step.compactions)[53] is S.SUBMITTED


def test_a_submission_without_work_for_a_worker_needs_no_capacity():
    state = manifest(tree((), (4,)), a=tree((2, 1)))
    value = compactions(entry(50, spec(runs=(4,), to=4), S.RUNNING), entry(51, drain(b"a", l0=(2, 1))))
    step = plan_commit_round(state, value, policy(capacity=1), ids())
    assert statuses(step.compactions) == {50: S.RUNNING, 51: S.COMPLETED}
