"""Rules V1–V13 (docs/reference/protocol.md 6.5), each broken once, and the specs that must pass."""

import itertools

import pytest

from shale.compaction.specs import exclude_each_other, touched_by
from shale.compaction.validation import ValidationStage, check_proposal, validate
from shale.errors import InvalidCompaction
from shale.types import SstView, Tree, Ulid
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, sst, tree, ulid, view

STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), seg=tree((14, 13), (8, 6)))


def broken_rule(state, what, stage=ValidationStage.SUBMITTED, others=()):
    mine = entry(100, what, S.SUBMITTED if stage is ValidationStage.SUBMITTED else S.COMPACTED)
    try:
        validate(state, compactions(mine, *others), mine, stage)
    except InvalidCompaction as error:
        return error.rule
    return None


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        pytest.param(spec((4, 3, 2, 1), to=9), None, id="all L0s"),
        pytest.param(spec((2, 1), to=9), None, id="the two oldest L0s"),
        pytest.param(spec((4, 3, 2, 1), (3,), to=3), None, id="L0s and the newest run"),
        pytest.param(spec(runs=(3, 2, 1), to=1), None, id="all runs"),
        pytest.param(spec(runs=(2,), to=2), None, id="a rewrite of one run"),
        pytest.param(drain(b"seg", (14, 13), (8, 6)), None, id="drain everything"),
        pytest.param(drain(b"seg", (), (6,)), None, id="drain the oldest run"),
        pytest.param(drain(b"seg", (13,), (8, 6)), None, id="drain an old L0 and all runs"),
        pytest.param(spec(to=9), "V1", id="no sources"),
        pytest.param(drain(b"", (1,)), "V2", id="drain of the root"),
        pytest.param(spec((4,), to=9, segment=b"x"), "V3", id="unknown segment"),
        pytest.param(spec((5, 4), to=9), "V4", id="unknown L0"),
        pytest.param(spec(runs=(5, 3), to=3), "V4", id="unknown run"),
        pytest.param(spec(runs=(8, 6), to=6), "V4", id="a run of another tree"),
        pytest.param(spec((4, 3, 2, 1), to=7), "V5", id="below the highest run of another tree"),
        pytest.param(spec((4, 3, 2, 1), to=3), "V5", id="an existing destination"),
        pytest.param(spec((4, 3, 2, 1), to=2**31 + 1), "V5", id="a destination that uses up the ids"),
        pytest.param(spec((4, 3, 2, 1), (3,), to=2), "V6", id="destination exists outside the sources"),
        pytest.param(spec((3, 2), to=9), "V7", id="L0s with an older one left"),
        pytest.param(spec((4, 3), to=9), "V7", id="the newest L0s only"),
        pytest.param(spec((1, 2), to=9), "V7", id="L0s in the wrong order"),
        pytest.param(drain(b"seg", (14,), (8, 6)), "V8", id="drain with an older L0 left"),
        pytest.param(drain(b"seg", (14, 13), ()), "V8", id="drain that leaves runs"),
        pytest.param(drain(b"seg", (), (8,)), "V8", id="drain that leaves an older run"),
        pytest.param(spec(runs=(3, 1), to=1), "V10", id="a run left out"),
        pytest.param(spec((2, 1), (2,), to=2), "V10", id="the newest run left out"),
        pytest.param(spec(runs=(2, 3), to=2), "V10", id="runs in the wrong order"),
        pytest.param(spec(runs=(3, 2), to=3), "V11", id="destination is not the oldest source"),
    ],
)
def test_rules_of_one_spec(what, rule):
    assert broken_rule(STATE, what) == rule


@pytest.mark.parametrize(
    ("what", "message"),
    [
        pytest.param(spec((4, 3), to=9), f"V7: .*the older {ulid(2)}, {ulid(1)} is not among them", id="V7"),
        pytest.param(spec((4, 2), to=9), f"V7: .*the older {ulid(3)}, {ulid(1)} is not among them", id="V7, a hole"),
        pytest.param(spec((1, 2), to=9), "V7: .*newest first", id="V7, order"),
        pytest.param(drain(b"seg", (14,), (8,)), f"V8: .*{ulid(13)}, SR6 would stay", id="V8"),
        pytest.param(spec(runs=(3, 1), to=1), "V10: the sources leave out SR2", id="V10"),
        pytest.param(spec(runs=(2, 3), to=2), "V10: the sources are not in order", id="V10, order"),
        pytest.param(spec((4,), to=9, segment=b"x" * 300), r"V3: segment (78){16}… \(300 bytes\) does", id="V3"),
        pytest.param(spec(runs=tuple(range(90, 60, -1)), to=1), r"V4: .*SR90, .*SR81, … 19 more …, SR61", id="V4"),
    ],
)
def test_a_broken_rule_is_named(what, message):
    mine = entry(100, what)
    with pytest.raises(InvalidCompaction, match=message):
        validate(STATE, compactions(mine), mine, ValidationStage.SUBMITTED)


@pytest.mark.parametrize(
    ("what", "other", "status", "rule"),
    [
        pytest.param(spec((4, 3, 2, 1), to=9), spec((1,), to=10), S.RUNNING, "V9", id="L0s, running"),
        pytest.param(spec((4, 3, 2, 1), to=9), spec((1,), to=10), S.SCHEDULED, "V9", id="L0s, scheduled"),
        pytest.param(spec((4, 3, 2, 1), to=9), spec((13,), to=10, segment=b"seg"), S.RUNNING, None, id="other segment"),
        pytest.param(spec((4, 3, 2, 1), to=9), spec((1,), to=10), S.SUBMITTED, None, id="submitted does not compete"),
        pytest.param(spec((4, 3, 2, 1), to=9), spec((1,), to=10), S.COMPACTED, "V12", id="L0s, compacted"),
        pytest.param(spec(runs=(2,), to=2), spec(runs=(3, 2), to=2), S.RUNNING, "V12", id="T6.g"),
        pytest.param(spec(runs=(3,), to=3), spec(runs=(2, 1), to=1), S.RUNNING, None, id="neighbours"),
        pytest.param(spec((2, 1), to=9), spec(runs=(3,), to=9), S.SCHEDULED, "V12", id="same destination"),
        pytest.param(spec(runs=(2,), to=2), spec(runs=(3, 2), to=2), S.FAILED, None, id="finished"),
    ],
)
def test_rules_of_two_specs(what, other, status, rule):
    assert broken_rule(STATE, what, others=(entry(50, other, status),)) == rule


def test_at_commit_the_destination_is_compared_with_its_own_tree_only():
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=7), ValidationStage.COMPACTED) is None
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=3), ValidationStage.COMPACTED) == "V5"
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=8), ValidationStage.COMPACTED) == "V6"


@pytest.mark.parametrize("stage", [ValidationStage.INHERITED, ValidationStage.COMPACTED])
def test_a_job_that_runs_already_needs_an_id_above_its_own_tree_only(stage):
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=4), stage) is None
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=2), stage) == "V5"
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=2**32 - 1), stage) is None, "the limit is for new requests"
    assert broken_rule(manifest(tree((1,))), spec((1,), to=0), stage) is None


def test_an_inherited_job_competes_with_others():
    others = (entry(50, spec((1,), to=10), S.RUNNING),)
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=9), ValidationStage.INHERITED, others) == "V9"
    assert broken_rule(STATE, spec((4, 3, 2, 1), to=9), ValidationStage.COMPACTED, others) == "V9"
    others = (entry(50, spec(runs=(3, 2), to=2), S.RUNNING),)
    assert broken_rule(STATE, spec(runs=(2,), to=2), ValidationStage.INHERITED, others) == "V12"


def test_the_stored_copy_of_an_entry_is_no_competitor():
    mine = entry(100, spec((4, 3, 2, 1), to=9), S.SCHEDULED)
    validate(STATE, compactions(mine), mine, ValidationStage.INHERITED)
    again = entry(99, mine.spec, S.SCHEDULED)
    with pytest.raises(InvalidCompaction, match=f"V9: compaction {mine.id} has L0s"):
        validate(STATE, compactions(mine), again, ValidationStage.INHERITED)


def test_only_a_drain_of_l0s_needs_unique_ones():
    state = manifest(seg=tree((2, 1, 1), (3,)))
    assert broken_rule(state, drain(b"seg", (), (3,))) is None
    assert broken_rule(state, drain(b"seg", (1,), (3,))) == "V13"
    assert broken_rule(state, spec(runs=(3,), to=3, segment=b"seg")) is None


def test_at_commit_overlaps_are_left_to_the_sweep():
    other = entry(50, spec(runs=(3, 2), to=2), S.RUNNING)
    assert broken_rule(STATE, spec(runs=(2,), to=2), ValidationStage.COMPACTED, (other,)) is None


@pytest.mark.parametrize(
    "doubled",
    [
        pytest.param(Tree(l0=(view(2), view(1), view(1))), id="the same view"),
        pytest.param(
            Tree(l0=(SstView(id=Ulid(7), sst=sst(1)), SstView(id=Ulid(6), sst=sst(1)))), id="two views of one SST"
        ),
    ],
)
def test_duplicate_l0s_are_not_compacted(doubled):
    oldest = doubled.l0[-1].id
    what = spec().__class__(l0_view_ids=(oldest,), destination=0)
    assert broken_rule(manifest(doubled), what) == "V13"


def test_proposals_do_not_repeat_a_destination_or_a_drain():
    drains = entry(2, drain(b"seg", (13,))), entry(3, drain(b"third", (1,)))
    active = compactions(entry(1, spec((1,), to=9)), *drains)
    with pytest.raises(InvalidCompaction):
        check_proposal(active, spec((4,), to=9))
    with pytest.raises(InvalidCompaction):
        check_proposal(active, drain(b"seg", (14, 13)))
    check_proposal(active, spec((4,), to=10))
    check_proposal(active, drain(b"other", (1,)))
    check_proposal(active, spec((14,), to=10, segment=b"seg"))
    merges = compactions(entry(1, spec((14,), to=9, segment=b"seg")))
    check_proposal(merges, drain(b"seg", (13,)))
    ended = compactions(entry(1, spec((1,), to=9), S.FAILED), entry(2, drain(b"seg", (13,)), S.COMPLETED))
    check_proposal(ended, spec((4,), to=9))
    check_proposal(ended, drain(b"seg", (14, 13)))


SPECS = (
    spec((2, 1), to=5),
    spec((3,), to=6),
    spec((2,), to=7, segment=b"a"),
    spec(runs=(5, 4), to=4),
    spec((9,), (7,), to=7, segment=b"a"),
    drain(b"a", (2,), (7, 3)),
    drain(b"b", (2,), (4,)),
    drain(b"b", (2,)),
)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(SPECS, SPECS)))
def test_specs_exclude_each_other_if_they_touch_the_same(one, other):
    assert exclude_each_other(one, other) == bool(touched_by(one) & touched_by(other))


@pytest.mark.parametrize(("newest", "highest"), [(3, 2**31), (2**31, 2**31 + 2**16 + 1), (2**32 - 9, 2**32 - 1)])
def test_a_request_does_not_use_the_ids_up(newest, highest):
    state = manifest(tree((2, 1), (newest,)))
    assert broken_rule(state, spec((2, 1), to=highest)) is None
    assert broken_rule(state, spec((2, 1), to=highest + 1)) == "V5"
