"""Rules of docs/reference/protocol.md 3.7: a change that breaks one is not written; what was broken before does not
block.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from shale.errors import CorruptionError, InvalidClockTick, ProtocolPanic
from shale.protocol.manifest_invariants import (
    NUMBER_MAX,
    check_manifest,
    decreases,
    newest_l0_ms,
    require_room,
    violations,
)
from shale.types import Epoch, ExternalDb, Manifest, Segment, Seq, Tree, WalId
from tests.unit.protocol.conftest import World, run
from tests.unit.protocol.values import run_of, tree, ulid, view

BASE = replace(
    Manifest(),
    tree=tree((5, 4), (run_of(3, 3), run_of(1, 1))),
    writer_epoch=Epoch(2),
    compactor_epoch=Epoch(2),
    next_wal_sst_id=WalId(9),
    replay_after_wal_id=WalId(7),
    last_l0_seq=Seq(50),
    external_dbs=(ExternalDb(path="parent", source_checkpoint_id=UUID(int=1), sst_ids=(ulid(4),)),),
)
Change = Callable[[Manifest], Manifest]


def with_tree(new: Tree) -> Change:
    return lambda manifest: replace(manifest, tree=new)


def with_segments(*prefixes: bytes) -> Change:
    segments = tuple(Segment(prefix=prefix, tree=Tree()) for prefix in prefixes)
    return lambda manifest: replace(manifest, segments=segments)


BROKEN: dict[str, Change] = {
    "runs ascend": with_tree(tree((5, 4), (run_of(1, 1), run_of(3, 3)))),
    "a run id repeats": with_tree(tree((5, 4), (run_of(3, 3), run_of(3, 1)))),
    "a run id in two trees": lambda manifest: replace(
        manifest, segments=(Segment(prefix=b"p", tree=tree((), (run_of(3, 2),))),)
    ),
    "an empty prefix": with_segments(b"", b"a"),
    "prefixes out of order": with_segments(b"b", b"a"),
    "a prefix repeats": with_segments(b"a", b"a"),
    "nested prefixes": with_segments(b"a", b"ab"),
    "replay starts at the end": lambda manifest: replace(manifest, replay_after_wal_id=WalId(9)),
}
FALLING: dict[str, Change] = {
    "next_wal_sst_id": lambda manifest: replace(manifest, next_wal_sst_id=WalId(8)),
    "replay_after_wal_id": lambda manifest: replace(manifest, replay_after_wal_id=WalId(6)),
    "last_l0_seq": lambda manifest: replace(manifest, last_l0_seq=Seq(49)),
    "writer_epoch": lambda manifest: replace(manifest, writer_epoch=Epoch(1)),
    "compactor_epoch": lambda manifest: replace(manifest, compactor_epoch=Epoch(1)),
    "is used but no longer listed": lambda manifest: replace(manifest, external_dbs=()),
}


def test_nothing_changed() -> None:
    check_manifest(BASE, BASE)


@pytest.mark.parametrize("name", BROKEN)
def test_a_new_violation_is_a_panic_and_an_old_one_is_not(name: str) -> None:
    broken = BROKEN[name](BASE)
    with pytest.raises(ProtocolPanic):
        check_manifest(BASE, broken)
    check_manifest(broken, replace(broken, last_l0_seq=Seq(51)))


@pytest.mark.parametrize("name", FALLING)
def test_a_decreasing_field_is_refused(name: str) -> None:
    with pytest.raises(ProtocolPanic, match=name):
        check_manifest(BASE, FALLING[name](BASE))


def test_an_external_sst_that_nothing_shows_may_go() -> None:
    check_manifest(BASE, replace(BASE, tree=tree((5,), BASE.tree.compacted), external_dbs=()))


@pytest.mark.parametrize(
    ("new_l0", "is_old"), [((6, 5, 4), False), ((5, 5, 4), False), ((4, 5, 4), True), ((2, 5, 4), True)]
)
def test_a_new_l0_is_not_older_than_the_newest(new_l0: tuple[int, ...], is_old: bool) -> None:
    pushed = replace(BASE, tree=replace(BASE.tree, l0=(view(new_l0[0], sst_ms=new_l0[0]), *BASE.tree.l0)))
    if new_l0[0] in {4, 5}:  # the same time, but another SST
        pushed_view = replace(view(1), id=ulid(new_l0[0], 1), sst=replace(view(1).sst, id=ulid(new_l0[0], 1)))
        pushed = replace(BASE, tree=replace(BASE.tree, l0=(pushed_view, *BASE.tree.l0)))
    if is_old:
        with pytest.raises(InvalidClockTick):
            check_manifest(BASE, pushed)
    else:
        check_manifest(BASE, pushed)


@pytest.mark.parametrize(
    ("trees", "newest"),
    [
        pytest.param((Tree(),), 0, id="never had one"),
        pytest.param((tree((5, 9, 4)),), 9, id="live ones, in whatever order"),
        pytest.param((tree((), (), 7),), 7, id="the watermark of a tree without"),
        pytest.param((tree((3,), (), 7),), 3, id="live ones count before the watermark"),
        pytest.param((tree((3,)), tree((), (), 8)), 8, id="over all trees"),
    ],
)
def test_newest_l0(trees: tuple[Tree, ...], newest: int) -> None:
    segments = tuple(Segment(prefix=bytes([65 + i]), tree=entry) for i, entry in enumerate(trees[1:]))
    assert newest_l0_ms(replace(Manifest(), tree=trees[0], segments=segments)) == newest


def test_the_store_refuses_before_it_writes(world: World) -> None:
    async def main() -> None:
        manifests = world.process().manifests
        stored = await manifests.create_new(BASE)
        with pytest.raises(ProtocolPanic):
            await stored.apply(lambda current: FALLING["last_l0_seq"](current.value))
        assert [version.id for version in await manifests.list_versions()] == [1]

    run(main)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs ascend", ["runs of segment '' do not descend"]),
        ("a run id repeats", ["runs of segment '' do not descend"]),
        ("a run id in two trees", ["run 3 exists in two trees"]),
        ("an empty prefix", ["a segment has an empty prefix", "segment  contains segment 61"]),
        ("prefixes out of order", ["segments 62 and 61 are not in order"]),
        ("a prefix repeats", ["segments 61 and 61 are not in order"]),
        ("nested prefixes", ["segment 61 contains segment 6162"]),
        ("replay starts at the end", ["replay_after_wal_id is not below next_wal_sst_id"]),
    ],
)
def test_each_violation_is_named_with_its_place(name: str, words: list[str]) -> None:
    assert list(violations(BROKEN[name](BASE))) == words


@pytest.mark.parametrize(
    "manifest",
    [
        BASE,
        Manifest(),
        with_segments(b"a", b"b")(BASE),
        replace(BASE, segments=(Segment(prefix=b"p", tree=tree((), (run_of(2, 2),))),)),
        replace(BASE, replay_after_wal_id=WalId(8)),
    ],
)
def test_good_manifests(manifest: Manifest) -> None:
    assert list(violations(manifest)) == []


def test_all_values_that_fall_are_named() -> None:
    low = replace(Manifest(), next_wal_sst_id=WalId(2), writer_epoch=Epoch(2), compactor_epoch=Epoch(3))
    assert list(decreases(BASE, low)) == [
        ("next_wal_sst_id", 9, 2),
        ("replay_after_wal_id", 7, 0),
        ("last_l0_seq", 50, 0),
    ]
    assert list(decreases(BASE, BASE)) == []


@pytest.mark.parametrize("field", ["next_wal_sst_id", "replay_after_wal_id", "writer_epoch", "compactor_epoch"])
def test_numbers_far_from_their_ends(field: str) -> None:
    require_room(replace(BASE, **{field: NUMBER_MAX - 1}), "m")
    with pytest.raises(CorruptionError, match=f"{field} is {NUMBER_MAX}, which no database reaches") as caught:
        require_room(replace(BASE, **{field: NUMBER_MAX}), "m")
    assert caught.value.path == "m"


def test_an_old_sst_may_move_between_trees() -> None:
    """Only SSTs that the change adds must not be older than the newest L0."""
    moved = replace(BASE, tree=tree((5,), BASE.tree.compacted), segments=(Segment(prefix=b"p", tree=tree((4,))),))
    check_manifest(BASE, moved)
    demoted = replace(BASE, tree=tree((5, 3), BASE.tree.compacted[1:]))
    check_manifest(BASE, demoted)
    with pytest.raises(InvalidClockTick, match="is older than 5 ms"):
        check_manifest(BASE, replace(BASE, segments=(Segment(prefix=b"p", tree=tree((2,))),)))


def test_an_external_sst_that_another_entry_lists_is_listed() -> None:
    (external,) = BASE.external_dbs
    renamed = replace(BASE, external_dbs=(replace(external, path="moved"),))
    check_manifest(BASE, renamed)
    with pytest.raises(ProtocolPanic):
        check_manifest(BASE, replace(BASE, external_dbs=(replace(external, sst_ids=(ulid(5),)),)))
