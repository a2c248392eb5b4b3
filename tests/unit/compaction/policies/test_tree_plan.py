"""The order in which trees get their merges, and the sources and ids that are in use."""

import pytest

from shale.compaction.policies.tree_plan import Sized, TreePlan, merge_of, propose, run_id
from shale.compaction.specs import L0Source, SortedRunSource
from shale.types import Manifest, RunId, Segment, SortedRun, TieredSpec, Tree
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, tree, ulid, view


def plans_of(state: Manifest, *others) -> list[TreePlan]:
    """Return what a policy gets for each tree, in order."""
    seen: list[TreePlan] = []

    def pick(plan: TreePlan, fresh: RunId) -> None:
        seen.append(plan)

    assert list(propose(state, compactions(*others), pick)) == []
    return seen


def test_sources_and_their_sizes():
    runs = (SortedRun(id=RunId(7), ssts=(view(30, 4), view(31, 8))), SortedRun(id=RunId(5), ssts=()))
    (plan,) = plans_of(manifest(Tree(l0=(view(2, 10), view(1, 20)), compacted=runs)))
    assert plan.l0 == (Sized(L0Source(b"", ulid(2)), 10), Sized(L0Source(b"", ulid(1)), 20))
    assert plan.runs == (Sized(SortedRunSource(RunId(7)), 12), Sized(SortedRunSource(RunId(5)), 0))
    assert [run_id(each) for each in plan.runs] == [7, 5]
    assert not plan.l0_is_ambiguous
    assert merge_of(plan, (*plan.l0[1:], *plan.runs), RunId(5)) == spec((1,), (7, 5), to=5)
    (double,) = plans_of(manifest(tree((2, 1, 1))))
    assert double.l0_is_ambiguous


def test_trees_with_more_l0s_are_asked_first():
    state = manifest(tree((1,)), a=tree((3, 2)), b=tree(), c=tree((9, 8)))
    assert [plan.segment for plan in plans_of(state)] == [b"a", b"c", b"", b"b"]


@pytest.mark.parametrize(
    ("other", "runs_free", "l0_free", "destination_free"),
    [
        pytest.param(entry(9, spec(runs=(3,), to=3), S.RUNNING), False, True, True, id="a run"),
        pytest.param(entry(9, spec((1,), to=8), S.SUBMITTED), True, False, False, id="an L0 and a new run"),
        pytest.param(entry(9, drain(b"", (1,), (3,)), S.COMPACTED), False, False, True, id="a drain"),
        pytest.param(entry(9, spec((1,), (3,), to=3), S.FAILED), True, True, True, id="it has failed"),
        pytest.param(entry(9, spec((1,), (3,), to=3, segment=b"a"), S.RUNNING), True, True, True, id="another tree"),
    ],
)
def test_sources_of_active_compactions_are_not_free(other, runs_free, l0_free, destination_free):
    plan = next(each for each in plans_of(manifest(tree((2, 1), (5, 3)), a=tree()), other) if not each.segment)
    assert plan.is_free(plan.runs, RunId(9)) is runs_free
    assert plan.is_free(plan.l0, RunId(9)) is l0_free
    assert plan.is_free((), RunId(8)) is destination_free
    assert plan.is_free(plan.runs[:1], RunId(5)), "run 5 is never in use"


def test_a_merge_takes_its_sources_and_the_next_id_until_no_tree_wants_one():
    state = Manifest(
        tree=tree((4, 3, 2, 1), (6,)),
        segments=(Segment(prefix=b"a", tree=tree((9, 8))), Segment(prefix=b"b", tree=tree())),
    )
    asked: list[tuple[bytes, int]] = []

    def pick(plan: TreePlan, fresh: RunId) -> TieredSpec | None:
        asked.append((plan.segment, fresh))
        free = [each for each in plan.l0 if plan.is_free((each,), fresh)]
        return merge_of(plan, free[-2:], RunId(fresh + 3)) if free else None

    assert list(propose(state, compactions(), pick)) == [
        spec((2, 1), to=10),
        spec((9, 8), to=14, segment=b"a"),
        spec((4, 3), to=18),
    ]
    assert asked == [(b"", 7), (b"a", 11), (b"b", 15), (b"", 15), (b"a", 19), (b"", 19)]


def test_a_low_destination_leaves_the_next_id():
    fresh_ids: list[int] = []

    def pick(plan: TreePlan, fresh: RunId) -> TieredSpec | None:
        fresh_ids.append(fresh)
        if not plan.is_free(plan.runs[-1:], fresh):
            return None
        return merge_of(plan, plan.runs[-1:], run_id(plan.runs[-1]))

    state = manifest(tree((), (7, 2)))
    assert list(propose(state, compactions(), pick)) == [spec(runs=(2,), to=2)]
    assert fresh_ids == [8, 8]
