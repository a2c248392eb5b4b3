"""Decides what a backup copies, and what a prune deletes.  Pure: no request is sent."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shale.backup.document import Backup, BackupObject, CopyIdentity, ObjectKind
from shale.backup.names import database_folder, earlier_sst_copy, folder_of, sst_copy
from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.file import EMPTY_FILE_BYTES_MAX
from shale.errors import InvalidRequestError, SstMissing
from shale.format.names import compacted_prefix, sst_key
from shale.types import Manifest, Ulid


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSst:
    """An SST of the database: its id, its key in the store, its size, and the name of a new copy."""

    id: Ulid
    key: str
    size: int
    copy: str

    @property
    def identity(self) -> CopyIdentity:
        """What a copy of it is."""
        return CopyIdentity(ObjectKind.SST, folder_of(self.copy), str(self.id))


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The SSTs of a backup: to copy, and copies that exist."""

    copy: tuple[SourceSst, ...]
    reuse: tuple[BackupObject, ...]

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(each.size for each in self.copy)


def owners(manifest: Manifest, path: str) -> dict[Ulid, str]:
    """Return the path of the database that stores each SST of a manifest: its own, or that of a parent."""
    borrowed = {sst_id: entry.path for entry in manifest.external_dbs for sst_id in entry.sst_ids}
    return {sst_id: borrowed.get(sst_id, path) for sst_id in sorted(manifest.ssts())}


def source_ssts(places: Mapping[Ulid, str], sizes: Mapping[str, int], backup_id: Ulid) -> tuple[SourceSst, ...]:
    """Return the SSTs with their sizes.

    Args:
        places: see ``owners``.
        sizes: bytes of the listed objects by key.
        backup_id: the backup that copies them.

    Raises:
        SstMissing: an object was not listed.
    """
    found = []
    for sst_id, path in places.items():
        key = sst_key(path, sst_id)
        if key not in sizes:
            raise SstMissing(str(sst_id), key)
        found.append(SourceSst(id=sst_id, key=key, size=sizes[key], copy=sst_copy(path, sst_id, backup_id)))
    return tuple(found)


def folders(places: Mapping[Ulid, str]) -> tuple[str, ...]:
    """Return the folders whose listing has the sizes of the SSTs, sorted."""
    return tuple(sorted({compacted_prefix(path) for path in places.values()}))


class KnownCopies:
    """Copies that are in the backup store, or should be, by what they are.

    Args:
        complete: objects of complete backups.
        journaled: objects that this backup has copied.
        present: sizes of the objects in the backup store by name.
    """

    def __init__(
        self, complete: Iterable[BackupObject], journaled: Iterable[BackupObject], present: Mapping[str, int]
    ) -> None:
        self._intact: dict[CopyIdentity, BackupObject] = {}
        self._damaged: dict[CopyIdentity, BackupObject] = {}
        for each in complete:
            found = self._intact if present.get(each.key) == each.size else self._damaged
            found[each.identity] = each
        self._intact |= {each.identity: each for each in journaled if present.get(each.key) == each.size}

    def intact(self, identity: CopyIdentity, size: int) -> BackupObject | None:
        """Return a copy that can be used again."""
        found = self._intact.get(identity)
        return None if found is None or found.size != size else found

    def key_of_copy(self, identity: CopyIdentity, size: int, new: str) -> str:
        """Return where to put a copy, if none is intact.

        Args:
            identity, size: what is copied.
            new: a new name.

        Returns:
            The new name, or that of a missing or damaged copy of a complete backup, which is repaired.  No prune has
            deleted this one, because a prune removes the documents first.
        """
        found = self._damaged.get(identity)
        return new if found is None or found.size != size else found.key


def names_to_keep(ssts: Iterable[SourceSst], known: Iterable[BackupObject]) -> tuple[str, ...]:
    """Return the names that a prune must keep for a backup: new copies of the SSTs, and all known copies of them.

    The previous release continues the backup with names of its own, and does not change the plan.
    """
    wanted = {each.identity: each for each in ssts}
    new = {name for each in wanted.values() for name in (each.copy, earlier_sst_copy(each.copy, each.id))}
    return tuple(sorted(new | {each.key for each in known if each.identity in wanted}))


def plan_copies(ssts: Iterable[SourceSst], known: KnownCopies) -> CopyPlan:
    """Decide which SSTs are copied, and where.

    A copy is used again if its checksum is known, and the object is there with the size of the source: an object
    without checksum is left by an interrupted backup, and one of another size is damaged.

    Args:
        ssts: all SSTs of the backup.
        known: copies with their checksums.
    """
    copy: list[SourceSst] = []
    reuse: list[BackupObject] = []
    for sst in ssts:
        earlier = known.intact(sst.identity, sst.size)
        if earlier is not None:
            reuse.append(earlier)
        else:
            copy.append(replace(sst, copy=known.key_of_copy(sst.identity, sst.size, sst.copy)))
    return CopyPlan(tuple(copy), tuple(reuse))


def lost_copies(objects: Iterable[BackupObject], present: Mapping[str, int]) -> tuple[BackupObject, ...]:
    """Return the objects that are missing in the backup store or have another size."""
    return tuple(each for each in objects if present.get(each.key) != each.size)


def first_wal_file(earlier: Iterable[Backup], path: str, replay_after: int, sizes: Mapping[int, int]) -> int:
    """Return the first WAL file to copy.

    It is the last file with rows of the last backup of this database, if no file is missing since: both backups then
    have this file, which proves that one WAL continues the other.  Otherwise it is the last file with rows that replay
    does not need, so that the next backup can continue this one.

    Args:
        earlier: all complete backups.
        path: the database.
        replay_after: the files after this one are needed in any case.
        sizes: bytes of the files that the store still has, by number.
    """
    last = max((each for each in earlier if each.path == path), key=lambda each: each.id, default=None)
    anchor = None if last is None else wal_anchor(last.wal)
    if anchor is not None and all(number in sizes for number in range(anchor, replay_after + 1)):
        return min(anchor, replay_after + 1)
    number = replay_after
    while number in sizes:
        if sizes[number] > EMPTY_FILE_BYTES_MAX:
            return number
        number -= 1
    return replay_after + 1


def wal_anchor(files: Mapping[int, BackupObject]) -> int | None:
    """Return the last WAL file with rows: two databases cannot have the same one."""
    return max((number for number, each in files.items() if each.size > EMPTY_FILE_BYTES_MAX), default=None)


def joined_wal(base: Backup, later: Iterable[Backup]) -> dict[int, BackupObject]:
    """Return the WAL files from the start of replay of a backup on, also those that later backups of it have.

    A later backup continues the WAL if it has the last file with rows of those so far.

    Args:
        base: the backup to restore.
        later: backups of the same path, ascending.
    """
    files = dict(base.wal)
    for each in later:
        anchor = wal_anchor(files)
        if anchor is not None and (link := each.wal.get(anchor)) is not None and link.sha256 == files[anchor].sha256:
            files |= {number: found for number, found in each.wal.items() if number > anchor}
    joined: dict[int, BackupObject] = {}
    number = base.replay_after_wal_id + 1
    while number in files:
        joined[number] = files[number]
        number += 1
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a prune needs to know of a backup in progress: its database, its start, and the copies that it needs."""

    id: Ulid
    path: str
    started_ms: int
    keys: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What a prune deletes.

    Args:
        kept, removed: the complete backups.
        unfinished, abandoned: backups in progress that are kept, and that are removed.
        objects: names and sizes of the copies to delete.
    """

    kept: tuple[Backup, ...]
    removed: tuple[Backup, ...]
    unfinished: tuple[Unfinished, ...]
    abandoned: tuple[Unfinished, ...]
    objects: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """Bytes of the objects to delete."""
        return sum(size for _, size in self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRules:
    """Which backups a prune removes; those that all given rules allow to remove.

    Args:
        keep: of each database, keep this many of the newest backups.
        older_than_ms: keep backups that are younger than this.
        abandoned_after_ms: remove backups in progress that began longer ago; ``None``: none.
    """

    keep: int | None = None
    older_than_ms: int | None = None
    abandoned_after_ms: int | None = None

    def __post_init__(self) -> None:
        if self.keep is None and self.older_than_ms is None:
            raise InvalidRequestError("a prune needs a rule: keep, older_than, or both")
        if self.keep is not None and self.keep < 0:
            raise InvalidRequestError(f"keep is {self.keep}: it must be 0 or more")


def plan_prune(
    backups: Sequence[Backup],
    unfinished: Sequence[Unfinished],
    present: Mapping[str, int],
    rules: PruneRules,
    now_ms: int,
) -> PrunePlan:
    """Decide which backups are removed, and which copies no remaining backup needs.

    Args:
        backups: the complete ones.
        unfinished: those in progress.
        present: sizes of the copies by name.
        rules: which backups to remove.
        now_ms: milliseconds since 1970.
    """
    removed = {each.id for each in _removable(backups, rules, now_ms)}
    kept = tuple(each for each in backups if each.id not in removed)
    limit = rules.abandoned_after_ms
    abandoned = tuple(each for each in unfinished if limit is not None and each.started_ms + limit <= now_ms)
    running = tuple(each for each in unfinished if each not in abandoned)
    needed = {found.key for each in kept for found in each.objects} | {key for each in running for key in each.keys}
    # The copies of WAL files and manifests have names that a backup in progress learns while it runs.
    held = tuple(f"{database_folder(each.path)}/{folder}/" for each in running for folder in ("wal", "manifest", "gc"))
    objects = tuple(
        (name, size) for name, size in sorted(present.items()) if name not in needed and not name.startswith(held)
    )
    return PrunePlan(
        kept=kept,
        removed=tuple(each for each in backups if each.id in removed),
        unfinished=running,
        abandoned=abandoned,
        objects=objects,
    )


def without_completed(plan: PrunePlan, later: Iterable[Backup]) -> PrunePlan:
    """Return what is left to delete after backups were completed that the prune took for abandoned ones.

    Args:
        plan: what the prune wanted to delete.
        later: backups that are not in ``plan`` and are complete, now that it has removed the plans of abandoned ones.
    """
    new = tuple(later)
    completed = {each.id for each in (*plan.kept, *plan.removed, *new)}
    needed = {found.key for each in new for found in each.objects}
    return replace(
        plan,
        kept=tuple(sorted((*plan.kept, *new), key=lambda each: each.id)),
        unfinished=tuple(each for each in plan.unfinished if each.id not in completed),
        abandoned=tuple(each for each in plan.abandoned if each.id not in completed),
        objects=tuple((name, size) for name, size in plan.objects if name not in needed),
    )


def _removable(backups: Sequence[Backup], rules: PruneRules, now_ms: int) -> Iterable[Backup]:
    by_path: defaultdict[str, list[Backup]] = defaultdict(list)
    for each in sorted(backups, key=lambda backup: backup.id, reverse=True):
        by_path[each.path].append(each)
    for newest_first in by_path.values():
        for place, each in enumerate(newest_first):
            is_beyond = rules.keep is None or place >= rules.keep
            is_old = rules.older_than_ms is None or each.started_ms + rules.older_than_ms <= now_ms
            if is_beyond and is_old:
                yield each
