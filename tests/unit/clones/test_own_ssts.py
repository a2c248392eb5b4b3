"""SSTs that a clone has itself from the start: rows of a WAL, and copies of SSTs whose id is taken."""

from dataclasses import replace

import pytest

import shale
from shale.admin.clones import source as source_of
from shale.clones.clone_manifest import borrowings, owned_ssts, places_of
from shale.clones.own_ssts import with_distinct_ids, with_wal_in_l0
from shale.errors import InvalidCloneSourceWithWal, WalTruncated
from shale.format.names import sst_key
from shale.types import Manifest, Segment, Seq, Tree, Ulid
from tests.unit.clones.test_clone import Harness, with_harness
from tests.unit.clones.test_wal_files import ENV, Logs, file_of, state
from tests.unit.clones.values import external, source, tree, ulid, view
from tests.unit.protocol.conftest import run


def test_rows_of_a_wal_become_an_l0_wherever_they_are() -> None:
    async def main() -> None:
        for with_rows in (None, 1, 16, 17, 40):
            logs = Logs()
            await logs.write([wal_id for wal_id in range(1, 41) if wal_id != with_rows], b"")
            if with_rows is not None:
                with pytest.raises(WalTruncated, match=str(with_rows)):
                    await with_wal_in_l0(logs.source, state(0, 41), "source", ENV)
                await logs.write([with_rows])
            changed, built = await with_wal_in_l0(logs.source, state(0, 41), "source", ENV)
            assert (changed.replay_after_wal_id, changed.next_wal_sst_id) == (40, 41)
            assert [each.sst.id for each in changed.tree.l0] == [sst.id for sst in built]
            assert len(built) == (with_rows is not None)
            assert changed.last_l0_seq == (0 if with_rows is None else 5)

    run(main)


def test_rows_before_the_range_after_it_and_in_l0s_are_left() -> None:
    async def main() -> None:
        logs = Logs()
        for wal_id in range(1, 7):
            await logs.write([wal_id], file_of(wal_id))
        for last_seq, expected in ((4, []), (3, [4]), (2, [3, 4])):
            before = replace(state(2, 5), last_l0_seq=Seq(last_seq), tree=tree([view(9, b"a")]))
            changed, built = await with_wal_in_l0(logs.source, before, "source", ENV)
            assert changed.last_l0_seq == 4
            assert len(built) == bool(expected)
            assert changed.tree.l0[len(built) :] == before.tree.l0

    run(main)


def test_rows_go_to_the_segments_of_the_manifest() -> None:
    async def main() -> None:
        logs = Logs()
        await logs.write([1], file_of(5))
        segmented = replace(state(0, 2), segment_extractor_name="first", segments=(Segment(prefix=b"ke", tree=Tree()),))
        changed, (built,) = await with_wal_in_l0(logs.source, segmented, "source", ENV)
        assert [each.sst.id for each in changed.segments[0].tree.l0] == [built.id]
        assert changed.tree.is_empty
        unknown = replace(segmented, segments=(Segment(prefix=b"x", tree=Tree()),))
        with pytest.raises(InvalidCloneSourceWithWal, match="source holds rows of a segment"):
            await with_wal_in_l0(logs.source, unknown, "source", ENV)

    run(main)


def test_only_ids_at_two_paths_are_changed() -> None:
    left = source("l", Manifest(tree=tree([view(3, b"a", b"b"), view(1, b"a", b"b")])))
    shared = replace(Manifest(tree=tree([view(1, b"x", b"z")])), external_dbs=(external("l", 5, 1),))
    assert with_distinct_ids([left, source("r", shared)]) == [left, source("r", shared)]
    other = source("r", Manifest(tree=tree([view(3, b"x", b"y"), view(2, b"x", b"z")])))
    first, second = with_distinct_ids([left, other])
    fresh = Ulid(ulid(3) + 1)
    assert first == left
    assert [(each.id, each.sst.id) for each in second.manifest.tree.l0] == [(fresh, fresh), (ulid(2), ulid(2))]
    assert dict(second.own) == {fresh: sst_key("r", ulid(3))}
    assert owned_ssts(second) == (ulid(2),)
    assert places_of(second) == {ulid(2): "r"}


def test_the_copy_of_a_borrowed_sst_is_borrowed_no_more() -> None:
    left = source("l", Manifest(tree=tree([view(1, b"a", b"b")])))
    nested = replace(Manifest(tree=tree([view(1, b"x", b"z")])), external_dbs=(external("g", 5, 1),))
    _, second = with_distinct_ids([left, source("r", nested)])
    (fresh,) = second.own
    assert second.own[fresh] == sst_key("g", ulid(1))
    assert borrowings(second) == ()


@with_harness
async def test_a_union_of_ssts_of_one_id_has_the_rows_of_both(harness: Harness) -> None:
    """Two databases that were copied as files, and written to separately with one id."""
    await harness.filled("q", b"x", b"y")
    await harness.filled("p", b"c")
    for path in ("p", "q"):
        await _give_id(harness, path, ulid(7))
    for attempt in ("u", "v"):
        async with harness.admin(attempt) as clones:
            made = await clones.create("p", source_of("q"))
        assert made.is_new
        async with shale.Admin(attempt, store=harness.store) as admin:
            assert (await admin.verify(deep=True)).findings == ()
        async with shale.Db.open(attempt, store=harness.store) as db:
            assert [row.key async for row in db.scan()] == [b"a", b"b", b"c", b"x", b"y"]
    united = (await harness.load("u")).value
    assert await harness.store.head(sst_key("u", Ulid(ulid(7) + 1))) is not None
    assert [entry.path for entry in united.external_dbs if ulid(7) in entry.sst_ids] == ["p"]


async def _give_id(harness: Harness, path: str, sst_id: Ulid) -> None:
    """Give the oldest SST of a database another id, as if it had been made with it."""
    stored = await harness.load(path)
    old = min(stored.value.ssts())
    l0 = tuple(
        replace(each, id=sst_id, sst=replace(each.sst, id=sst_id)) if each.sst.id == old else each
        for each in stored.value.tree.l0
    )
    await harness.store.copy(sst_key(path, old), sst_key(path, sst_id))
    changed = replace(stored.value, tree=replace(stored.value.tree, l0=l0))
    await stored.store.commit(stored.id, changed)
