"""Which objects a destroy deletes, and in which order.  Pure: listings and a manifest in, a plan out.

SSTs are deleted first and the latest manifest last.  After an interruption the manifest still names the parents that
the database borrows from, and the boundary still rejects stale writes.

Source: docs/reference/protocol.md 8.8; SlateDB slatedb/src/admin.rs (delete_db).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidDeletion
from shale.format.names import PREFLIGHT_FOLDER, below, parse_manifest_key
from shale.store.port import ObjectMeta
from shale.types import Checkpoint, Epoch, Manifest

_NAMED_MAX = 10


class DeletionStage(IntEnum):
    """Objects that are deleted together; a stage ends before the next one starts."""

    OTHER = 0
    """Unknown objects.  They are deleted only with ``force``, and first, so that a rerun does not need ``force``."""
    COMPACTED = 1
    WAL = 2
    COMPACTIONS = 3
    COMPACTION_RECORDS = 4
    MANIFEST = 5
    GC = 6
    PREFLIGHT = 7
    """Scratch objects of a daemon that was killed at its start."""
    LATEST_MANIFEST = 8
    MARKER = 9
    """``.destroyed``.  The last one, ``.deleting``, is not part of a plan."""

    @property
    def namespace(self) -> str:
        """The name that reports show."""
        return "manifest" if self is DeletionStage.LATEST_MANIFEST else self.name.lower()


_FOLDERS = {
    stage.namespace: stage
    for stage in DeletionStage
    if stage not in (DeletionStage.OTHER, DeletionStage.PREFLIGHT, DeletionStage.LATEST_MANIFEST, DeletionStage.MARKER)
}


@dataclass(frozen=True, slots=True)
class ObjectToDelete:
    """An object to delete.  ``in_wal_store``: it is in the separate store of the WAL."""

    key: str
    size: int
    stage: DeletionStage
    in_wal_store: bool = False
    last_modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class Total:
    """Objects and bytes of one namespace."""

    namespace: str
    count: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyPlan:
    """The effect of a hard destroy.

    Args:
        root: the database.
        manifest_id: id of the latest manifest; ``None`` if there is none.
        is_begun: an earlier destroy was interrupted after its marker.
        objects: the objects to delete, in order of deletion.
        checkpoints: live checkpoints, which forbid a destroy without ``force``.
        parents: paths of the databases to release, as the manifest names them.
    """

    root: str
    manifest_id: int | None
    is_begun: bool
    objects: tuple[ObjectToDelete, ...]
    checkpoints: tuple[Checkpoint, ...] = ()
    parents: tuple[str, ...] = ()

    @property
    def foreign(self) -> tuple[str, ...]:
        """Keys below the root that the database does not know."""
        return tuple(each.key for each in self.objects if each.stage is DeletionStage.OTHER)

    @property
    def size(self) -> int:
        """Size of all objects in bytes."""
        return sum(each.size for each in self.objects)

    @property
    def newest_ms(self) -> int | None:
        """When the newest object was written, by the store's clock; a recent time suggests a running writer."""
        return max((each.last_modified_ms for each in self.objects), default=None)

    def totals(self) -> tuple[Total, ...]:
        """Return objects and bytes by namespace, in order of deletion."""
        found: dict[str, Total] = {}
        for each in self.objects:
            name = each.stage.namespace
            total = found.get(name, Total(name, 0, 0))
            found[name] = replace(total, count=total.count + 1, size=total.size + each.size)
        return tuple(found.values())

    def obstacles(self) -> tuple[str, ...]:
        """Return why a destroy without ``force`` would be refused; empty if it would not."""
        return tuple(filter(None, (_about_checkpoints(self.root, self.checkpoints), _about_foreign(self))))


def objects_to_delete(
    root: str, objects: Iterable[ObjectMeta], wal_objects: Iterable[ObjectMeta] = ()
) -> list[ObjectToDelete]:
    """Return the objects of these listings to delete, in order of deletion.

    Keys outside the root are skipped: a sibling path with the same prefix, or the placeholder object that some tools
    create for a folder.

    Args:
        objects: everything below the root in the store.
        wal_objects: everything below the root in the separate WAL store, where only WAL files are deleted.

    Raises:
        InvalidDeletion: a key has a ``.`` or ``..`` segment, so a store might delete another object.
    """
    return sort_for_deletion(root, [*classify(root, objects), *classify(root, wal_objects, in_wal_store=True)])


def classify(root: str, objects: Iterable[ObjectMeta], *, in_wal_store: bool = False) -> Iterator[ObjectToDelete]:
    """Yield the objects of one listing page to delete; arguments and errors as in ``objects_to_delete``."""
    for meta, stage in _staged(root, objects):
        if stage is DeletionStage.WAL or not in_wal_store:
            yield ObjectToDelete(meta.key, meta.size, stage, in_wal_store, meta.last_modified_ms)


def sort_for_deletion(root: str, found: list[ObjectToDelete]) -> list[ObjectToDelete]:
    """Sort the list in place by stage and key; the latest manifest gets a stage of its own."""
    numbered = (
        (id_, place)
        for place, each in enumerate(found)
        if each.stage is DeletionStage.MANIFEST and (id_ := parse_manifest_key(root, each.key)) is not None
    )
    _, latest = max(numbered, default=(0, None))
    if latest is not None:
        found[latest] = replace(found[latest], stage=DeletionStage.LATEST_MANIFEST)
    found.sort(key=lambda each: (each.stage, each.in_wal_store, each.key))
    return found


def live_checkpoints(manifest: Manifest, now_ms: int) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that have not expired, without those of writers: a destroy fences its writer."""
    live = (entry for entry in manifest.checkpoints if not entry.is_expired(now_ms))
    return tuple(entry for entry in live if entry.writer_epoch is None)


def sealed(manifest: Manifest) -> Manifest:
    """Return the version after which no process can write, pin or clone the database.

    Both epochs rise, which fences writer and coordinator.  Without ``initialized`` no checkpoint of the current state
    can be created, and without checkpoints none can be derived from another.
    """
    return replace(
        manifest,
        initialized=False,
        checkpoints=(),
        writer_epoch=Epoch(manifest.writer_epoch + 1),
        compactor_epoch=Epoch(manifest.compactor_epoch + 1),
    )


def require_no_checkpoints(root: str, manifest: Manifest, now_ms: int) -> None:
    """Check that there is no live checkpoint.

    Raises:
        InvalidDeletion: there is one; the message names all of them.
    """
    if problem := _about_checkpoints(root, live_checkpoints(manifest, now_ms)):
        raise InvalidDeletion(problem)


def require_own_objects(plan: DestroyPlan) -> None:
    """Check that all objects below the root belong to the database.

    Raises:
        InvalidDeletion: some do not; the message names them.
    """
    if problem := _about_foreign(plan):
        raise InvalidDeletion(problem)


def _staged(root: str, objects: Iterable[ObjectMeta]) -> Iterator[tuple[ObjectMeta, DeletionStage]]:
    """Yield the objects that may be deleted, each with its stage."""
    inside = below(root, "")
    for meta in objects:
        if not meta.key.startswith(inside) or len(meta.key) == len(inside):
            continue
        if any(segment in (".", "..") for segment in meta.key.split("/")):
            raise InvalidDeletion(f"{meta.key!r} has a segment that is '.' or '..': delete this object by its own name")
        stage = _stage_of(meta.key[len(inside) :].split("/"), meta.size)
        if stage is not None:
            yield meta, stage


def _stage_of(segments: Sequence[str], size: int) -> DeletionStage | None:
    """Return the stage of an object by its name below the root; ``None`` for a folder placeholder and ``.deleting``."""
    match segments:
        case [".deleting"]:
            return None
        case [".destroyed"]:
            return DeletionStage.MARKER
        case [folder, *_] if folder == PREFLIGHT_FOLDER:
            return DeletionStage.PREFLIGHT
        case [folder] if folder in _FOLDERS and not size:
            return None
        case [folder, name] if folder in _FOLDERS:
            return _FOLDERS[folder] if name else None
    return DeletionStage.OTHER


def _about_checkpoints(root: str, checkpoints: Sequence[Checkpoint]) -> str:
    if not checkpoints:
        return ""
    named = _listed([f"{entry.id}{f' ({entry.name})' if entry.name else ''}" for entry in checkpoints])
    return f"{root or '/'} has {len(checkpoints)} live checkpoints, which clones or readers may need: {named}"


def _about_foreign(plan: DestroyPlan) -> str:
    if not plan.foreign:
        return ""
    where = plan.root or "/"
    return f"{len(plan.foreign)} objects below {where} are not the database's own: {_listed(plan.foreign)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
