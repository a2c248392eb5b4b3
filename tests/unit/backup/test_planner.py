"""What a backup copies and what a prune deletes, as pure functions of what there is."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.backup.document import Backup, BackupObject, ObjectKind, decode_backup, encode_backup
from shale.backup.names import sst_copy
from shale.backup.planner import (
    KnownCopies,
    PruneRules,
    SourceSst,
    Unfinished,
    first_wal_file,
    joined_wal,
    lost_copies,
    names_to_keep,
    plan_copies,
    plan_prune,
    source_ssts,
    without_completed,
)
from shale.crypto.key_names import key_name_of
from shale.errors import CorruptionError, InvalidRequestError, SstMissing
from shale.types import Ulid

DAY_MS = 86_400_000


def object_of(kind: ObjectKind, name: str, key: str = "", size: int = 100, sha: str = "aa") -> BackupObject:
    return BackupObject(kind=kind, name=name, key=key or f"objects/db/{kind}/{name}", size=size, sha256=sha)


def backup_of(number: int, *objects: BackupObject, path: str = "db", replay_after: int = 0) -> Backup:
    return Backup(
        id=Ulid.from_parts(number, 0),
        started_ms=number * DAY_MS,
        completed_ms=number * DAY_MS + 1,
        source=f"file:///data/{path}",
        path=path,
        manifest_id=number,
        checkpoint_id=UUID(int=number),
        last_l0_seq=7,
        replay_after_wal_id=replay_after,
        objects=(object_of(ObjectKind.MANIFEST, str(number)), *objects),
        copied_objects=1,
        copied_bytes=2,
    )


def sst(number: int) -> BackupObject:
    """Return the copy of an SST as earlier releases name it."""
    return object_of(ObjectKind.SST, str(Ulid(number)), f"objects/db/compacted/{Ulid(number)}.sst")


def wal(number: int, size: int = 100, sha: str = "") -> BackupObject:
    return object_of(ObjectKind.WAL, str(number), size=size, sha=sha or f"sha {number}")


def test_a_document_is_read_back_and_a_changed_one_is_refused() -> None:
    backup = backup_of(3, replace(sst(1), encryption_key="2026"), wal(4))
    data = encode_backup(backup)
    assert decode_backup(data, path="x") == backup
    assert backup.encryption_keys == ("2026",)
    assert b'"schema_version": 1' in data
    for wrong in (data.replace(b"2026", b"2027"), b"{}", b"[]", data[:-4], data.replace(b": 1,", b": 9,", 1)):
        with pytest.raises(CorruptionError, match="x: "):
            decode_backup(wrong, path="x")


def source(number: int, backup: int = 9) -> SourceSst:
    copy = sst_copy("db", Ulid(number), Ulid(backup))
    return SourceSst(id=Ulid(number), key="", size=100, copy=copy)


def test_a_copy_is_used_again_only_with_a_checksum_and_the_right_size() -> None:
    present = {sst(1).key: 100, sst(2).key: 99, sst(4).key: 100, sst(5).key: 100, sst(6).key: 99}
    known = KnownCopies([sst(1), sst(2), sst(3)], [sst(5), sst(6)], present)
    plan = plan_copies([source(number) for number in range(1, 7)], known)
    # Damaged copies of complete backups are repaired; those of an interrupted one may be deleted by a prune.
    copies = {2: sst(2).key, 3: sst(3).key, 4: source(4).copy, 6: source(6).copy}
    assert {int(each.id): each.copy for each in plan.copy} == copies
    assert plan.reuse == (sst(1), sst(5))
    assert plan.size == 400
    assert lost_copies([sst(1), sst(2)], {sst(1).key: 100}) == (sst(2),)
    with pytest.raises(SstMissing):
        source_ssts({Ulid(1): "db"}, {}, Ulid(9))


def test_a_copy_is_known_by_what_it_is_and_not_by_its_name() -> None:
    renamed = replace(sst(1), key=source(1, 5).copy)
    assert renamed.identity == sst(1).identity == source(1).identity
    foreign = replace(sst(1), key=sst_copy("other", Ulid(1), Ulid(5)))
    assert foreign.identity != sst(1).identity
    first, second = wal(1, sha="first"), wal(1, sha="second")
    assert first.identity != second.identity
    assert replace(first, key=f"{first.key}-x").identity == first.identity
    assert names_to_keep([source(1)], [renamed, sst(1), sst(2), foreign]) == tuple(
        sorted({source(1).copy, renamed.key, sst(1).key})
    )
    known = KnownCopies([sst(1), renamed], [], {renamed.key: 100})
    assert plan_copies([source(1)], known).reuse == (renamed,)
    smaller = replace(sst(1), size=99)
    assert plan_copies([source(1)], KnownCopies([smaller], [], {sst(1).key: 99})).copy == (source(1),)


def test_a_prune_keeps_the_names_under_which_the_previous_release_continues_a_backup() -> None:
    other = SourceSst(id=Ulid(2), key="", size=100, copy=sst_copy("parent", Ulid(2), Ulid(9)))
    earlier = {sst(1).key, f"objects/parent/compacted/{Ulid(2)}.sst"}
    assert set(names_to_keep([source(1), other], [])) == {source(1).copy, other.copy, *earlier}


def test_the_wal_begins_with_the_last_file_that_the_last_backup_has() -> None:
    sizes = dict.fromkeys(range(1, 9), 100) | {6: 0}
    assert first_wal_file([], "db", 6, sizes) == 5, "the last file with rows before replay"
    assert first_wal_file([], "db", 0, sizes) == 1
    earlier = [backup_of(1, wal(2), wal(3), wal(4, size=0)), backup_of(2, wal(7), path="other")]
    assert first_wal_file(earlier, "db", 6, sizes) == 3
    assert first_wal_file(earlier, "db", 2, sizes) == 3
    del sizes[4]
    assert first_wal_file(earlier, "db", 6, sizes) == 5, "a file is missing since the last backup"


def test_wal_files_are_joined_only_over_a_common_file() -> None:
    base = backup_of(1, wal(2), wal(3), wal(4, size=0), replay_after=1)
    assert list(joined_wal(base, [])) == [2, 3, 4]
    continued = backup_of(2, wal(3), wal(4, size=0), wal(5), replay_after=4)
    assert list(joined_wal(base, [continued])) == [2, 3, 4, 5]
    other = backup_of(2, wal(3, sha="another"), wal(4), wal(5), replay_after=4)
    assert list(joined_wal(base, [other])) == [2, 3, 4]
    gap = backup_of(2, wal(3), wal(6), replay_after=5)
    assert list(joined_wal(base, [gap])) == [2, 3, 4]


def test_a_prune_keeps_what_remaining_backups_and_those_in_progress_need() -> None:
    backups = [backup_of(1, sst(1), sst(2)), backup_of(2, sst(2), sst(3)), backup_of(3, sst(3), path="other")]
    present = {each.key: each.size for backup in backups for each in backup.objects} | {
        sst(9).key: 5,
        "objects/db/wal/held": 6,
        "objects/other/wal/lost": 7,
    }
    running = Unfinished(id=Ulid(9), path="db", started_ms=8 * DAY_MS, keys=frozenset({sst(9).key}))
    plan = plan_prune(backups, [running], present, PruneRules(keep=1), 9 * DAY_MS)
    assert plan.removed == (backups[0],)
    assert [name for name, _ in plan.objects] == sorted({sst(1).key, "objects/other/wal/lost"})
    rules = PruneRules(keep=1, abandoned_after_ms=DAY_MS)
    plan = plan_prune(backups, [running], present, rules, 9 * DAY_MS)
    assert plan.abandoned == (running,)
    assert {name for name, _ in plan.objects} >= {sst(9).key, "objects/db/wal/held", backups[0].manifest.key}
    assert plan.size == sum(present[name] for name, _ in plan.objects)


def test_a_prune_deletes_no_copy_of_a_backup_that_was_completed_since_it_was_planned() -> None:
    old, new, gone = backup_of(1, sst(1)), backup_of(2, sst(1), sst(2)), Ulid(9)
    present = {each.key: each.size for backup in (old, new) for each in backup.objects} | {sst(9).key: 5}
    running = [
        Unfinished(id=each, path="db", started_ms=0, keys=frozenset({sst(2).key, sst(9).key}))
        for each in (new.id, gone)
    ]
    rules = PruneRules(keep=1, abandoned_after_ms=0)
    plan = plan_prune([old], running, present, rules, DAY_MS)
    assert {name for name, _ in plan.objects} == {new.manifest.key, sst(2).key, sst(9).key}
    assert plan.abandoned == tuple(running)
    done = without_completed(plan, [new])
    assert done.objects == ((sst(9).key, 5),)
    assert (done.kept, done.removed, done.abandoned) == ((old, new), (), (running[1],))
    assert without_completed(plan, []) == plan


def test_both_rules_of_a_prune_must_allow_a_removal() -> None:
    backups = [backup_of(number, sst(number)) for number in range(1, 6)]

    def removed(**rules: int) -> list[int]:
        plan = plan_prune(backups, [], {}, PruneRules(**rules), 6 * DAY_MS)
        return [each.manifest_id for each in plan.removed]

    assert removed(keep=2) == [1, 2, 3]
    assert removed(older_than_ms=4 * DAY_MS) == [1, 2]
    assert removed(keep=4, older_than_ms=4 * DAY_MS) == [1]
    assert removed(keep=0) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidRequestError):
        PruneRules()
    with pytest.raises(InvalidRequestError):
        PruneRules(keep=-1)


def test_the_name_of_a_key_is_read_from_the_first_bytes_of_an_object() -> None:
    assert key_name_of(b"\x01\x03k-1" + bytes(12)) == "k-1"
    for plain in (b"", b"\x01", b"\x01\x09short", b"\x00\x03k-1", b"\x01\x02a\x00", b"\x28\xb5\x2f\xfd"):
        assert key_name_of(plain) is None
