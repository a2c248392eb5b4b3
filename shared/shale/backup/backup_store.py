"""The place of backups in an object store: documents, backups in progress, copies, and the lock of a prune."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from shale.backup import names
from shale.backup.document import (
    MALFORMED,
    Backup,
    BackupObject,
    count_of,
    decode_backup,
    encode_backup,
    object_fields,
    parse_object,
    seal,
    unseal,
)
from shale.backup.planner import Unfinished
from shale.backup.prune_lock import acquire_lock, break_locks, find_lock, release_lock
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import (
    AlreadyExists,
    CorruptionError,
    InvalidDbState,
    NotFoundError,
    Precondition,
    ShaleError,
    UnavailableError,
)
from shale.format.names import below
from shale.store.port import CREATE, LIST_PAGE, OVERWRITE, GetResult, ObjectStore, Update
from shale.types import Ulid

_TRIES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedBackup:
    """A backup in progress, or interrupted.

    Args:
        plan_id: its id, that of the later backup.
        started_ms: milliseconds since 1970.
        source, path: the database.
        checkpoint_id: the checkpoint that keeps the state.
        owns_checkpoint: the backup created it, and deletes it at its end.
        manifest_id: the version of the manifest.
        ssts: names of copies of its SSTs: those that it uses, and those that it makes.
        copied: the objects that it has copied, by name.
    """

    plan_id: Ulid
    started_ms: int
    source: str
    path: str
    checkpoint_id: UUID
    owns_checkpoint: bool
    manifest_id: int
    ssts: tuple[str, ...]
    copied: Mapping[str, BackupObject]

    @property
    def needs(self) -> Unfinished:
        """What a prune must keep."""
        keys = frozenset(self.ssts) | frozenset(self.copied)
        return Unfinished(id=self.plan_id, path=self.path, started_ms=self.started_ms, keys=keys)


class BackupStore:
    """Reads and writes the objects below the root of a backup store."""

    def __init__(self, store: ObjectStore, root: str, env: Env) -> None:
        self.store = store
        self.root = root
        self._env = env

    def key(self, name: str) -> str:
        """Return the key of an object from its name relative to the root."""
        return below(self.root, name)

    async def ids(self) -> list[Ulid]:
        """List the complete backups, oldest first."""
        listed = await self.store.list(names.documents_prefix(self.root))
        found = (names.parse_document_key(self.root, meta.key) for meta in listed)
        return sorted(each for each in found if each is not None)

    async def backups(self, known: Collection[Ulid] = ()) -> tuple[Backup, ...]:
        """Read all complete backups but the ``known`` ones, oldest first.

        Raises:
            CorruptionError: a document is damaged.
        """
        ids = [each for each in await self.ids() if each not in known]
        read = await gather([partial(self.try_read, each) for each in ids]) if ids else []
        return tuple(each for each in read if each is not None)

    async def try_read(self, backup_id: Ulid) -> Backup | None:
        """Read one backup; ``None`` if there is none of this id."""
        key = names.document_key(self.root, backup_id)
        found = await self.store.get(key)
        if found is None:
            return None
        with advice("give the id of another backup, or remove this object to give this backup up"):
            backup = decode_backup(found.data, path=key)
            if backup.id != backup_id:
                raise CorruptionError(f"it is the document of backup {backup.id}", path=key)
        return backup

    async def read(self, backup_id: Ulid) -> Backup:
        """Read one backup.

        Raises:
            NotFoundError: there is none of this id, or it is not complete.
        """
        found = await self.try_read(backup_id)
        if found is None:
            raise NotFoundError(f"{self.store.url}: there is no complete backup {backup_id} below {self.root or '/'}")
        return found

    async def create(self, backup: Backup) -> Backup:
        """Write the document of a backup, which completes it; return the stored one.

        Another process may have completed the same backup first: its document is as good.

        Raises:
            NotFoundError: that document has been removed.
        """
        try:
            await self.store.put(names.document_key(self.root, backup.id), encode_backup(backup), mode=CREATE)
        except AlreadyExists:
            return await self.read(backup.id)
        return backup

    async def delete_document(self, backup_id: Ulid) -> None:
        """Delete the document of a backup: the backup does not exist any more."""
        await self.store.delete(names.document_key(self.root, backup_id))

    async def present(self) -> dict[str, int]:
        """List all copies: their sizes by name."""
        start = len(self.key(""))
        listed = await self.store.list(names.objects_prefix(self.root))
        return {meta.key[start:]: meta.size for meta in listed}

    async def delete_copies(self, copies: Sequence[str]) -> dict[str, ShaleError]:
        """Delete up to ``LIST_PAGE`` copies by name; return errors by name."""
        assert len(copies) <= LIST_PAGE
        by_key = {self.key(name): name for name in copies}
        errors = await self.store.delete_many(list(by_key))
        return {by_key[key]: error for key, error in errors.items()}

    async def unfinished(self) -> tuple[UnfinishedBackup, ...]:
        """Read all backups in progress, oldest first.

        Raises:
            CorruptionError: a plan or a list of copied objects is damaged.
        """
        prefix = names.unfinished_prefix(self.root)
        keys_of: dict[Ulid, list[str]] = {}
        for meta in await self.store.list(prefix):
            found = Ulid.parse(meta.key.removeprefix(prefix).partition("/")[0])
            if found is not None:
                keys_of.setdefault(found, []).append(meta.key)
        read = [await self._read_unfinished(each, keys) for each, keys in sorted(keys_of.items())]
        return tuple(each for each in read if each is not None)

    async def start(self, plan: UnfinishedBackup) -> None:
        """Write the plan of a new backup: from now on no prune deletes what it needs.

        Raises:
            InvalidDbState: a prune runs, which may have read the plans before.
        """
        await self.store.put(names.plan_key(self.root, plan.plan_id), _encode_plan(plan), mode=CREATE)
        await self.require_no_prune()

    async def resume(self, plan: UnfinishedBackup) -> None:
        """Add what a backup that is resumed needs to its plan, which keeps it from prunes as after ``start``.

        Nothing is written if the plan is gone: a plan that a prune has removed must not come back.

        Raises:
            InvalidDbState: see ``start``.
            UnavailableError: other processes change the plan at the same time.
        """
        await self._extend(plan)
        await self.require_no_prune()

    async def _extend(self, plan: UnfinishedBackup) -> None:
        key = names.plan_key(self.root, plan.plan_id)
        for _ in range(_TRIES_MAX):
            found = await self.store.get(key)
            if found is None:
                return
            stored = self._parse_unfinished(plan.plan_id, found, ())
            ssts = tuple(sorted({*stored.ssts, *plan.ssts}))
            if ssts == stored.ssts:
                return
            mode = OVERWRITE if found.meta.etag is None else Update(found.meta.etag)
            with suppress(Precondition):
                await self.store.put(key, _encode_plan(replace(stored, ssts=ssts)), mode=mode)
                return
        raise UnavailableError(f"{key} is changed by other processes: run this again")

    async def has_plan(self, plan_id: Ulid) -> bool:
        """Return whether a backup is in progress still."""
        return await self.store.head(names.plan_key(self.root, plan_id)) is not None

    async def require_no_prune(self) -> None:
        """Check that no prune runs.

        A backup writes its plan and then looks for a lock, a prune writes its lock and then reads the plans: at
        least one of the two sees the other.

        Raises:
            InvalidDbState: one runs.
        """
        if await find_lock(self.store, self.root) is not None:
            raise InvalidDbState(
                f"{self.store.url}: a prune runs below {self.root or '/'}: run this again when it has ended; "
                "if it was killed, run the prune again with break_lock"
            )

    async def record(self, plan_id: Ulid, copied: Iterable[BackupObject]) -> None:
        """Record copied objects, so that a backup that is resumed does not copy them again."""
        body = {"objects": [object_fields(each) for each in copied]}
        await self.store.put(names.journal_key(self.root, plan_id, self._env.ids.ulid()), seal(body))

    async def finish(self, plan_id: Ulid) -> None:
        """Remove the plan of a backup, and then its lists: a folder without plan is not a backup in progress."""
        await self.store.delete(names.plan_key(self.root, plan_id))
        rest = [meta.key for meta in await self.store.list(names.unfinished_folder(self.root, plan_id))]
        for start in range(0, len(rest), LIST_PAGE):
            await self.store.delete_many(rest[start : start + LIST_PAGE])

    async def lock(self, *, break_lock: bool) -> Ulid:
        """Lock the store for a prune; return the id of the lock.

        Raises:
            InvalidDbState: another prune runs, or was killed.
        """
        if break_lock:
            await break_locks(self.store, self.root)
        return await acquire_lock(self.store, self.root, self._env)

    async def unlock(self, lock_id: Ulid) -> None:
        """Remove the lock of a prune."""
        await release_lock(self.store, self.root, lock_id)

    async def _read_unfinished(self, plan_id: Ulid, keys: Sequence[str]) -> UnfinishedBackup | None:
        key = names.plan_key(self.root, plan_id)
        plan = await self.store.get(key)
        if plan is None:
            return None
        lists = await gather([partial(self.store.get, each) for each in keys if each != key]) if len(keys) > 1 else []
        folder = names.unfinished_folder(self.root, plan_id)
        with advice(f"the backup was interrupted: remove the objects below {folder}, and the next one starts anew"):
            return self._parse_unfinished(plan_id, plan, [each for each in lists if each is not None])

    def _parse_unfinished(self, plan_id: Ulid, plan: GetResult, lists: Sequence[GetResult]) -> UnfinishedBackup:
        key = plan.meta.key
        fields = unseal(plan.data, path=key)
        try:
            copied = [parse_object(fields) for each in lists for fields in _objects(each.data, each.meta.key)]
            return UnfinishedBackup(
                plan_id=plan_id,
                started_ms=count_of(fields, "started_ms"),
                source=str(fields["source"]),
                path=str(fields["path"]),
                checkpoint_id=UUID(fields["checkpoint_id"]),
                owns_checkpoint=bool(fields["owns_checkpoint"]),
                manifest_id=count_of(fields, "manifest_id"),
                ssts=tuple(fields["ssts"]),
                copied={each.key: each for each in copied},
            )
        except MALFORMED as error:
            raise CorruptionError(f"a field is missing or malformed: {error}", path=key) from error


@contextmanager
def advice(what: str) -> Iterator[None]:
    """Add to the error of a damaged object what to do."""
    try:
        yield
    except CorruptionError as error:
        raise CorruptionError(f"{error.message}; {what}", path=error.path) from error


def _encode_plan(plan: UnfinishedBackup) -> bytes:
    plain = ("started_ms", "source", "path", "owns_checkpoint", "manifest_id")
    body = {name: getattr(plan, name) for name in plain}
    return seal({**body, "checkpoint_id": str(plan.checkpoint_id), "ssts": list(plan.ssts)})


def _objects(data: memoryview, path: str) -> list[Any]:
    objects: list[Any] = unseal(data, path=path)["objects"]
    return objects
