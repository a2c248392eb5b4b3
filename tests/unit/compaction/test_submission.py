"""What a refused request tells: the broken rule, and what would be valid."""

import pytest

from shale.compaction.requests import Full, Spec
from shale.compaction.submission import as_scheduled, check_entry, plan_submission
from shale.errors import InvalidCompaction
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, statuses, tree, ulid

STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)), new=tree((20,)), old=tree((), (0,)))


def hint(state, what, *others) -> str:
    """Return the message of a refusal without the spec and the broken rule."""
    with pytest.raises(InvalidCompaction) as refused:
        check_entry(state, compactions(*others), entry(100, what))
    assert str(refused.value).startswith(f"{refused.value.rule}: ")
    return str(refused.value).partition("; ")[2]


def listed(*milliseconds: int) -> str:
    return ", ".join(str(ulid(ms)) for ms in milliseconds)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        pytest.param(
            spec((9,), to=9), f"the tree has the L0s {listed(4, 3, 2, 1)} and the runs SR3, SR2, SR1", id="V4, both"
        ),
        pytest.param(spec((9,), to=9, segment=b"new"), f"the tree has the L0s {listed(20)}", id="V4, L0s"),
        pytest.param(spec((9,), to=9, segment=b"old"), "the tree has the runs SR0", id="V4, runs"),
        pytest.param(drain(b"", (1,)), "drain a segment, or compact the root tree", id="V2"),
        pytest.param(spec((4,), to=9, segment=b"x"), "there are 6c6f67, 6e6577, 6f6c64 (in hex)", id="V3"),
        pytest.param(spec((2, 1), to=8), "use destination 9", id="V5"),
        pytest.param(spec(runs=(3, 2), to=1), "name it as a source too, or use destination 2", id="V6"),
        pytest.param(spec((3,), to=9), f"the oldest 1 are {listed(1)}, newest first", id="V7, one"),
        pytest.param(spec((4, 3, 2), to=9), f"the oldest 3 are {listed(3, 2, 1)}, newest first", id="V7, three"),
        pytest.param(drain(b"log", (13,), (8,)), f"drain {listed(13)}, SR8, SR6", id="V8, from an L0"),
        pytest.param(drain(b"log", (), (8,)), "drain SR8, SR6", id="V8, from a run"),
        pytest.param(spec(runs=(3, 1), to=1), "", id="V10 says it itself"),
        pytest.param(spec(runs=(3, 2), to=3), "use destination 2", id="V11"),
    ],
)
def test_what_would_be_valid(what, told):
    assert hint(STATE, what) == told


def test_other_rules_need_no_hint():
    doubled = manifest(tree((2, 1, 1)))
    assert hint(doubled, spec((1,), to=0)) == "its L0s must be promoted first", "the end of the rule's own message"
    assert hint(manifest(), spec()) == "the tree is empty"


@pytest.mark.parametrize(
    ("count", "told"),
    [
        pytest.param(8, listed(8, 7, 6, 5, 4, 3, 2, 1), id="eight"),
        pytest.param(9, f"{listed(9, 8, 7, 6, 5, 4, 3, 2)} and 1 more", id="nine"),
        pytest.param(20, f"{listed(*range(20, 12, -1))} and 12 more", id="twenty"),
    ],
)
def test_at_most_eight_names_are_listed(count, told):
    state = manifest(tree(tuple(range(count, 0, -1))))
    assert hint(state, spec((99,), to=0)) == f"the tree has the L0s {told}"


@pytest.mark.parametrize(
    ("what", "others", "waits_for"),
    [
        pytest.param(spec(runs=(2, 1), to=1), (entry(50, spec(runs=(1,), to=1), S.RUNNING),), (50,), id="a source"),
        pytest.param(spec((2, 1), to=9), (entry(50, spec(runs=(9,), to=9), S.SCHEDULED),), (50,), id="the destination"),
        pytest.param(
            spec((4, 3, 2, 1), to=9),
            (
                entry(50, spec((1,), to=10), S.SUBMITTED),
                entry(51, spec((13,), to=11, segment=b"log"), S.RUNNING),
                entry(52, spec(runs=(3,), to=3), S.RUNNING),
                entry(53, spec((2,), to=12), S.COMPLETED),
                entry(54, spec((7,), to=13), S.RUNNING),
            ),
            (50, 54),
            id="L0s of the same tree",
        ),
    ],
)
def test_active_compactions_that_are_in_the_way_are_named(what, others, waits_for):
    assert hint(STATE, what, *others) == f"wait for {listed(*waits_for)}, or cancel it"


def test_the_refused_spec_comes_first():
    with pytest.raises(InvalidCompaction) as refused:
        check_entry(STATE, compactions(), entry(100, spec(runs=(3, 2), to=3)))
    assert refused.value.rule == "V11"
    assert str(refused.value) == (
        "V11: [SR3, SR2] -> SR3: destination 3 is not the oldest source run; use destination 2"
    )


def test_submitted_entries_count_as_scheduled():
    every = compactions(*(entry(index + 1, spec(runs=(1,), to=1), status) for index, status in enumerate(S)))
    expected = [S.SCHEDULED if status is S.SUBMITTED else status for status in S]
    assert list(statuses(as_scheduled(every)).values()) == expected


def test_the_entries_of_a_request_are_checked_against_each_other():
    """A broken manifest lists a run in two trees; the second entry would fail."""
    twice = manifest(tree((), (3, 2)), log=tree((), (3, 2)))
    with pytest.raises(InvalidCompaction, match=f"V12: .*compaction {ulid(60)}"):
        plan_submission(twice, compactions(), Full(), lambda index: ulid(60 + index))


def test_planned_entries_are_submitted_under_the_given_ids():
    planned = plan_submission(STATE, compactions(), Full(), lambda index: ulid(60 + index))
    assert [(each.id.ms, each.status, each.spec.segment) for each in planned] == [
        (60, S.SUBMITTED, b""),
        (61, S.SUBMITTED, b"log"),
        (62, S.SUBMITTED, b"old"),
    ]
    (only,) = plan_submission(STATE, compactions(), Spec(spec(runs=(1,), to=1)), ulid)
    assert only == entry(0, spec(runs=(1,), to=1))
