"""Tables of what may be deleted.

Source: docs/reference/protocol.md 8.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shale.gc.planner import (
    RECORD_MIN_AGE_MS,
    Cutoff,
    SstFile,
    cutoff_for_ssts,
    plan_compacted_gc,
    plan_compactions_gc,
    plan_detach,
    plan_manifest_gc,
    plan_records_gc,
    plan_wal_gc,
)
from shale.protocol.versioned import VersionMeta
from shale.protocol.wal_store import WalFile
from shale.store.port import ObjectMeta
from shale.types import (
    Compaction,
    Compactions,
    CompactionStatus,
    Manifest,
    RunId,
    Segment,
    TieredSpec,
    Tree,
    WalId,
)
from tests.unit.gc.values import external, tree, ulid, view, wal_state

pytestmark = pytest.mark.fault("F5.6", "F5.7", "F5.8", "F5.22")

NOW_MS = 1_000_000
MIN_AGE_MS = 1_000
OLD, EDGE, YOUNG = NOW_MS - MIN_AGE_MS - 1, NOW_MS - MIN_AGE_MS, NOW_MS


def versions(*modified_ms: int, first: int = 1) -> list[VersionMeta]:
    return [VersionMeta(first + number, ms, 10) for number, ms in enumerate(modified_ms)]


@pytest.mark.parametrize(
    ("listed", "pinned", "doomed", "boundary"),
    [
        pytest.param((), (), (), None, id="nothing is there"),
        pytest.param((OLD,), (), (), None, id="the only version stays"),
        pytest.param((OLD, OLD, OLD), (), (1, 2), 2, id="old ones go, the newest stays"),
        pytest.param((OLD, OLD, OLD), (2,), (1,), 1, id="a checkpoint pins its manifest"),
        pytest.param((OLD, OLD, OLD, OLD), (2,), (1, 3), 3, id="the boundary may pass what is pinned"),
        pytest.param((OLD, EDGE, YOUNG, YOUNG), (), (1,), 1, id="exactly min_age is not old"),
        pytest.param((YOUNG, OLD, YOUNG), (), (2,), 2, id="ages need not follow the order of ids"),
    ],
)
def test_manifest_plan(
    listed: Sequence[int], pinned: Sequence[int], doomed: Sequence[int], boundary: int | None
) -> None:
    plan = plan_manifest_gc(versions(*listed), pinned=pinned, now_ms=NOW_MS, min_age_ms=MIN_AGE_MS)
    assert tuple(version.id for version in plan.candidates) == tuple(doomed)
    assert plan.boundary == boundary


def test_trace_8a() -> None:
    """A checkpoint pins 8, the latest is 10: boundary 9, deleted are 1 to 7 and 9."""
    plan = plan_manifest_gc(versions(*[OLD] * 10), pinned={8}, now_ms=NOW_MS, min_age_ms=MIN_AGE_MS)
    assert [version.id for version in plan.candidates] == [1, 2, 3, 4, 5, 6, 7, 9]
    assert plan.boundary == 9


def test_nothing_pins_compactions() -> None:
    plan = plan_compactions_gc(versions(OLD, OLD, EDGE, OLD), now_ms=NOW_MS, min_age_ms=MIN_AGE_MS)
    assert [version.id for version in plan.candidates] == [1, 2]
    assert plan.boundary == 2


def wal(id_: int, *, modified_ms: int = OLD, fence: bool = False) -> WalFile:
    return WalFile(WalId(id_), 0 if fence else 100, modified_ms)


@pytest.mark.parametrize(
    ("latest", "checkpointed", "doomed"),
    [
        pytest.param((5, 9), [], [1, 2, 3, 4], id="replay_after itself stays"),
        pytest.param((0, 1), [], [], id="a new database"),
        pytest.param((1, 9), [], [], id="file 1 proves where the log stands"),
        pytest.param((8, 9), [(3, 6)], [1, 2, 3, 6, 7], id="a checkpoint keeps what it replays, 4 and 5"),
        pytest.param((8, 9), [(3, 4)], [1, 2, 3, 4, 5, 6, 7], id="a checkpoint with an empty log"),
        pytest.param((8, 9), [(1, 3), (5, 7)], [1, 3, 4, 5, 7], id="two checkpoints"),
    ],
)
def test_wal_plan(latest: tuple[int, int], checkpointed: list[tuple[int, int]], doomed: list[int]) -> None:
    files = [wal(id_) for id_ in range(1, 10)]
    plan = plan_wal_gc(
        files,
        latest=wal_state(*latest),
        checkpointed=[wal_state(*state) for state in checkpointed],
        fences=False,
        now_ms=NOW_MS,
        min_age_ms=MIN_AGE_MS,
    )
    assert [file.id for file in plan] == doomed


def test_a_follower_keeps_everything_after_its_position() -> None:
    plan = plan_wal_gc(
        [wal(id_) for id_ in range(1, 10)],
        latest=wal_state(8, 9),
        checkpointed=[wal_state(3, 5)],
        oldest_followed_wal_id=3,
        fences=False,
        now_ms=NOW_MS,
        min_age_ms=MIN_AGE_MS,
    )
    assert [file.id for file in plan] == [1, 2, 3]


@pytest.mark.parametrize(("fences", "doomed"), [(False, [1, 4]), (True, [2])])
def test_fences_and_rows_are_two_tasks_and_ages_are_strict(fences: bool, doomed: list[int]) -> None:
    files = [wal(1), wal(2, fence=True), wal(3, modified_ms=EDGE), wal(4), wal(5, modified_ms=YOUNG, fence=True)]
    plan = plan_wal_gc(
        files, latest=wal_state(9, 10), checkpointed=[], fences=fences, now_ms=NOW_MS, min_age_ms=MIN_AGE_MS
    )
    assert [file.id for file in plan] == doomed


def compactions(*entries: tuple[int, CompactionStatus]) -> Compactions:
    spec = TieredSpec(destination=RunId(0))
    return Compactions(entries=tuple(Compaction(id=ulid(ms, 7), spec=spec, status=status) for ms, status in entries))


RUNNING, DONE = CompactionStatus.RUNNING, CompactionStatus.COMPLETED


@pytest.mark.parametrize(
    ("recorded", "expected_ms"),
    [
        pytest.param(None, 0, id="no file"),
        pytest.param(compactions(), 0, id="an empty file"),
        pytest.param(compactions((700, RUNNING), (800, RUNNING)), 700, id="only active ones"),
        pytest.param(compactions((700, DONE)), 700, id="only a finished one"),
        pytest.param(compactions((600, DONE), (800, RUNNING)), 600, id="both"),
    ],
)
def test_the_term_of_the_compactions(recorded: Compactions | None, expected_ms: int) -> None:
    cutoff = cutoff_for_ssts(Manifest(tree=tree(l0=[900])), recorded, now_ms=NOW_MS, min_age_ms=0)
    assert cutoff.compactions_ms == expected_ms
    assert cutoff.final_ms == min(expected_ms, 900)


@pytest.mark.parametrize(
    ("trees", "expected_ms"),
    [
        pytest.param([tree()], 0, id="nothing at all"),
        pytest.param([tree(runs=[500])], 0, id="runs do not count"),
        pytest.param([tree(l0=[800, 700])], 800, id="the newest L0"),
        pytest.param([tree(l0=[700, 800])], 800, id="whatever its place"),
        pytest.param([tree(l0=[800], watermark=900)], 800, id="a live L0 stands before the watermark"),
        pytest.param([tree(watermark=900)], 900, id="the watermark when no L0 is left"),
        pytest.param([tree(), tree(l0=[300]), tree(watermark=400)], 400, id="the newest of all trees"),
    ],
)
def test_the_term_of_the_newest_l0(trees: list[Tree], expected_ms: int) -> None:
    root, *others = trees
    segments = tuple(Segment(prefix=bytes([number]), tree=other) for number, other in enumerate(others, 1))
    cutoff = cutoff_for_ssts(
        Manifest(tree=root, segments=segments), compactions((5_000, DONE)), now_ms=NOW_MS, min_age_ms=0
    )
    assert cutoff.newest_l0_ms == expected_ms


def test_the_watermark_is_a_view_and_l0s_are_ssts() -> None:
    """A projected L0 keeps its view id; only its SST has the creation time."""
    projected = Manifest(tree=Tree(l0=(view(300, view_ms=900),)))
    assert cutoff_for_ssts(projected, None, now_ms=NOW_MS, min_age_ms=0).newest_l0_ms == 300


@pytest.mark.parametrize("term", ["min_age_ms", "compactions_ms", "newest_l0_ms"])
def test_an_sst_exactly_at_a_term_is_kept(term: str) -> None:
    cutoff = replace(Cutoff(min_age_ms=900, compactions_ms=900, newest_l0_ms=900), **{term: 500})
    files = [SstFile(ulid(ms, chance), 10) for ms, chance in ((499, 2**80 - 1), (500, 0), (500, 2**80 - 1), (501, 0))]
    assert [file.id.ms for file in plan_compacted_gc(files, active=(), cutoff=cutoff)] == [499]


def test_what_is_shown_somewhere_is_kept() -> None:
    cutoff = Cutoff(min_age_ms=900, compactions_ms=900, newest_l0_ms=900)
    files = [SstFile(ulid(ms), 10) for ms in (1, 2, 3)]
    assert [file.id for file in plan_compacted_gc(files, active={ulid(2)}, cutoff=cutoff)] == [ulid(1), ulid(3)]


def test_min_age_counts_back_from_the_start_of_the_pass() -> None:
    cutoff = cutoff_for_ssts(
        Manifest(tree=tree(l0=[2 * NOW_MS])),
        compactions((2 * NOW_MS, DONE)),
        now_ms=NOW_MS,
        min_age_ms=MIN_AGE_MS,
    )
    assert cutoff.final_ms == NOW_MS - MIN_AGE_MS


def clone(*parents: object, initialized: bool = True) -> Manifest:
    return Manifest(initialized=initialized, external_dbs=tuple(parents))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("latest", "checkpointed", "paths"),
    [
        pytest.param(clone(), [], [], id="no clone"),
        pytest.param(clone(external("p", final=1, ssts=[1])), [], [], id="still read"),
        pytest.param(clone(external("p", final=1)), [], ["p"], id="no longer read"),
        pytest.param(clone(external("p", final=None)), [], [], id="nothing of ours in the parent"),
        pytest.param(clone(external("p", final=1), initialized=False), [], [], id="half built"),
        pytest.param(
            clone(external("p", final=1)), [clone(external("p", final=1, ssts=[1]))], [], id="a checkpoint reads it"
        ),
        pytest.param(
            clone(external("p", final=1), external("q", final=2)),
            [clone(external("q", final=2, ssts=[1]))],
            ["p"],
            id="each parent by itself",
        ),
        pytest.param(
            clone(external("p", final=1)), [clone(external("p", final=3, ssts=[1]))], ["p"], id="another checkpoint"
        ),
    ],
)
def test_detach_plan(latest: Manifest, checkpointed: list[Manifest], paths: list[str]) -> None:
    assert [parent.path for parent in plan_detach(latest, checkpointed)] == paths


@pytest.mark.parametrize(
    ("min_age_ms", "age_ms", "is_old"),
    [
        (0, RECORD_MIN_AGE_MS, False),
        (0, RECORD_MIN_AGE_MS + 1, True),
        (RECORD_MIN_AGE_MS + 5, RECORD_MIN_AGE_MS + 5, False),
        (RECORD_MIN_AGE_MS + 5, RECORD_MIN_AGE_MS + 6, True),
    ],
)
def test_a_record_is_kept_for_a_week_or_longer(min_age_ms: int, age_ms: int, is_old: bool) -> None:
    now_ms = 10 * RECORD_MIN_AGE_MS
    old, active = (ObjectMeta(f"k{number}", 1, now_ms - age_ms) for number in range(2))
    records = [(ulid(1), old), (ulid(2), active)]
    planned = plan_records_gc(records, active={ulid(2)}, now_ms=now_ms, min_age_ms=min_age_ms)
    assert planned == ((old,) if is_old else ())


@pytest.mark.parametrize("followed", [None, 0, 1, 9])
def test_followers_and_replays_together(followed: int | None) -> None:
    plan = plan_wal_gc(
        [wal(id_) for id_ in range(1, 10)],
        latest=wal_state(7, 9),
        checkpointed=[wal_state(2, 4)],
        oldest_followed_wal_id=followed,
        fences=False,
        now_ms=NOW_MS,
        min_age_ms=MIN_AGE_MS,
    )
    assert [file.id for file in plan] == [id_ for id_ in (1, 2, 4, 5, 6) if followed is None or id_ <= followed]
