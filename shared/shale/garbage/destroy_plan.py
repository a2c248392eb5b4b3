"""What destroying a database deletes, and in which order.  Pure: listings and a manifest in, a plan out.

SSTs go first and the latest manifest last, so that whatever is left after a stop still says which parents the database
borrows from, and which versions may not be written any more.

Source: docs/protocol.md 8.8; SlateDB slatedb/src/admin.rs (delete_db).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from shale.errors import InvalidDeletion
from shale.format.names import below, parse_manifest_key
from shale.store.port import ObjectMeta
from shale.types import Checkpoint, Epoch, Manifest

_NAMED_MAX = 10


class Stage(IntEnum):
    """What goes together; a stage ends before the next one begins."""

    OTHER = 0
    """Objects of nobody known, which go only by force; they go first, so that a rerun needs none."""
    COMPACTED = 1
    WAL = 2
    COMPACTIONS = 3
    MANIFEST = 4
    GC = 5
    LATEST_MANIFEST = 6
    MARKER = 7
    """``.destroyed``.  The last one, ``.deleting``, is not part of a plan."""

    @property
    def namespace(self) -> str:
        """Under which name people see it."""
        return "manifest" if self is Stage.LATEST_MANIFEST else self.name.lower()


_FOLDERS = {
    "compacted": Stage.COMPACTED,
    "wal": Stage.WAL,
    "compactions": Stage.COMPACTIONS,
    "manifest": Stage.MANIFEST,
    "gc": Stage.GC,
}


@dataclass(frozen=True, slots=True)
class Condemned:
    """An object that goes.  ``in_wal_store``: it is in the store that the WAL has of its own."""

    key: str
    size: int
    stage: Stage
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
    """What a hard destroy would do.

    Args:
        root: the database.
        manifest_id: of the latest manifest; ``None`` if there is none any more.
        is_begun: somebody has begun and not finished.
        objects: what goes, by stage and key.
        checkpoints: live ones, which forbid it.
        parents: databases that are released, each by the path that the manifest writes.
    """

    root: str
    manifest_id: int | None
    is_begun: bool
    objects: tuple[Condemned, ...]
    checkpoints: tuple[Checkpoint, ...] = ()
    parents: tuple[str, ...] = ()

    @property
    def foreign(self) -> tuple[str, ...]:
        """Keys below the root that are not the database's own."""
        return tuple(each.key for each in self.objects if each.stage is Stage.OTHER)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(each.size for each in self.objects)

    @property
    def newest_ms(self) -> int | None:
        """When the youngest object was written, by the store's clock: what is young may have a writer."""
        return max((each.last_modified_ms for each in self.objects), default=None)

    def totals(self) -> tuple[Total, ...]:
        """Objects and bytes by namespace, in the order in which they go."""
        found: dict[str, Total] = {}
        for each in self.objects:
            name = each.stage.namespace
            total = found.get(name, Total(name, 0, 0))
            found[name] = replace(total, count=total.count + 1, size=total.size + each.size)
        return tuple(found.values())

    def obstacles(self) -> tuple[str, ...]:
        """Why it would be refused without force; empty: it would not."""
        return tuple(filter(None, (_about_checkpoints(self.root, self.checkpoints), _about_foreign(self))))


def condemned(root: str, objects: Iterable[ObjectMeta], wal_objects: Iterable[ObjectMeta] = ()) -> list[Condemned]:
    """What of these listings goes, by stage and key.

    Nothing outside the root is among it, whatever a listing shows: a sibling whose name begins alike, or the
    placeholder that some tools make for a folder.

    Args:
        objects: everything below the root in the store.
        wal_objects: everything below the root in the WAL's own store; only WAL files are the database's there.

    Raises:
        InvalidDeletion: a key below the root climbs out of it with ``..``, so what a store would delete is uncertain.
    """
    return in_order(root, [*classified(root, objects), *classified(root, wal_objects, in_wal_store=True)])


def classified(root: str, objects: Iterable[ObjectMeta], *, in_wal_store: bool = False) -> Iterator[Condemned]:
    """What of a page of a listing goes, in its order; the arguments and errors of ``condemned``."""
    for meta, stage in _staged(root, objects):
        if stage is Stage.WAL or not in_wal_store:
            yield Condemned(meta.key, meta.size, stage, in_wal_store, meta.last_modified_ms)


def in_order(root: str, found: list[Condemned]) -> list[Condemned]:
    """The same list by stage and key, with the latest manifest in a stage of its own."""
    numbered = (
        (id_, place)
        for place, each in enumerate(found)
        if each.stage is Stage.MANIFEST and (id_ := parse_manifest_key(root, each.key)) is not None
    )
    _, latest = max(numbered, default=(0, None))
    if latest is not None:
        found[latest] = replace(found[latest], stage=Stage.LATEST_MANIFEST)
    found.sort(key=lambda each: (each.stage, each.in_wal_store, each.key))
    return found


def live_checkpoints(manifest: Manifest, now_ms: int) -> tuple[Checkpoint, ...]:
    """Those that somebody may still rely on."""
    return tuple(entry for entry in manifest.checkpoints if not entry.is_expired(now_ms))


def sealed(manifest: Manifest) -> Manifest:
    """The version after which nobody can write, pin or clone the database any more.

    Both epochs rise, so writer and coordinator are fenced; without ``initialized`` no checkpoint of the current state
    can be made, and without checkpoints none from another.
    """
    return replace(
        manifest,
        initialized=False,
        checkpoints=(),
        writer_epoch=Epoch(manifest.writer_epoch + 1),
        compactor_epoch=Epoch(manifest.compactor_epoch + 1),
    )


def require_no_checkpoints(root: str, manifest: Manifest, now_ms: int) -> None:
    """Return if nobody relies on the database.

    Raises:
        InvalidDeletion: names the checkpoints.
    """
    if problem := _about_checkpoints(root, live_checkpoints(manifest, now_ms)):
        raise InvalidDeletion(problem)


def require_own_objects(plan: DestroyPlan) -> None:
    """Return if everything below the root is the database's.

    Raises:
        InvalidDeletion: names what is not.
    """
    if problem := _about_foreign(plan):
        raise InvalidDeletion(problem)


def _staged(root: str, objects: Iterable[ObjectMeta]) -> Iterator[tuple[ObjectMeta, Stage]]:
    """The objects that may go, each with its stage."""
    inside = below(root, "")
    for meta in objects:
        if not meta.key.startswith(inside) or len(meta.key) == len(inside):
            continue
        if any(segment in (".", "..") for segment in meta.key.split("/")):
            raise InvalidDeletion(f"{meta.key!r} has a segment that is '.' or '..': delete this object by its own name")
        stage = _stage_of(meta.key[len(inside) :].split("/"), meta.size)
        if stage is not None:
            yield meta, stage


def _stage_of(segments: Sequence[str], size: int) -> Stage | None:
    """Where an object belongs by its name below the root; ``None`` for a placeholder and the last marker."""
    match segments:
        case [".deleting"]:
            return None
        case [".destroyed"]:
            return Stage.MARKER
        case [folder] if folder in _FOLDERS and not size:
            return None
        case [folder, name] if folder in _FOLDERS:
            return _FOLDERS[folder] if name else None
    return Stage.OTHER


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
