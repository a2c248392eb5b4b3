"""Unreferenced objects: which processes may still need them, and when GC may delete them."""

from collections.abc import Iterable

from shale.admin.verify.listing import ListedSst, Stray
from shale.admin.verify.orphans import ORPHANS_MAX, Orphan, Orphans, sst_orphans, stray_orphans, wal_orphans
from shale.protocol.wal_store import WalFile
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, RunId, TieredSpec, Ulid, WalId
from tests.unit.gc.values import tree, ulid, wal_state


def a_job(ms: int, status: CompactionStatus = CompactionStatus.COMPLETED) -> Compaction:
    return Compaction(id=ulid(ms), spec=TieredSpec(sorted_runs=(RunId(1),), destination=RunId(1)), status=status)


def orphans_of(ids: Iterable[Ulid], jobs: Iterable[Compaction] = (), **fields: object) -> list[Orphan]:
    found = sst_orphans(
        [ListedSst(each, 7) for each in ids],
        root="db",
        referenced={ulid(50)},
        latest=Manifest(tree=tree(l0=(100,))),
        compactions=Compactions(entries=tuple(jobs)),
        **fields,  # type: ignore[arg-type]
    )
    return list(found)


def test_referenced_ssts_are_no_orphans() -> None:
    assert orphans_of([ulid(50)], [a_job(80)]) == []


def test_an_old_sst_is_deleted_by_gc() -> None:
    (orphan,) = orphans_of([ulid(40)], [a_job(80)])
    assert (orphan.made_ms, orphan.kept_by, orphan.size) == (40, None, 7)


def test_without_a_compaction_gc_keeps_all_ssts() -> None:
    (orphan,) = orphans_of([ulid(40)])
    assert orphan.made_ms is None


def test_an_sst_that_a_recorded_job_may_have_written_is_kept() -> None:
    (orphan,) = orphans_of([ulid(90)], [a_job(80), a_job(95)])
    assert (orphan.made_ms, orphan.kept_by) == (None, f"compaction {ulid(80)}")


def test_an_sst_that_the_writer_may_publish_is_kept() -> None:
    (orphan,) = orphans_of([ulid(120)], [a_job(130)])
    assert (orphan.made_ms, orphan.kept_by) == (None, "the newest L0")


def test_with_an_unreadable_checkpoint_nothing_can_be_deleted() -> None:
    (orphan,) = orphans_of([ulid(40)], [a_job(80)], is_all_known=False)
    assert orphan.made_ms is None
    assert "checkpoint" in (orphan.kept_by or "")


def test_wal_files_that_are_replayed_or_followed_are_no_orphans() -> None:
    files = [WalFile(WalId(number), 0 if number == 2 else 5, number) for number in range(1, 8)]
    found = wal_orphans(
        files, latest=wal_state(6, 8), pinned=[wal_state(3, 5)], oldest_followed_wal_id=5, prefix="db/wal/"
    )
    assert [orphan.made_ms for orphan in found] == [1, 3, 5]


def test_orphans_beyond_the_limit_are_only_counted() -> None:
    found = Orphans()
    found.add(stray_orphans(Stray(f"db/{number}", 2) for number in range(ORPHANS_MAX + 3)))
    assert len(found.listed) == ORPHANS_MAX
    ((_, total),) = found.totals.items()
    assert (total.objects, total.bytes) == (ORPHANS_MAX + 3, 2 * (ORPHANS_MAX + 3))
