"""The first manifest of a clone: the trees of its source, and the databases that it borrows SSTs from.

Source: docs/reference/protocol.md 10.2, step 6; 11.2, rules 6 and 7.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidDbState, InvalidUnion
from shale.types import ExternalDb, KeyRange, Manifest, Ulid

NewUuid = Callable[[], UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A database at one of its checkpoints.

    Args:
        path: the path as manifests store it.
        manifest: the manifest of the checkpoint, projected if requested.
        named_range: the key range that the caller requested of this source.
        own: SSTs of ``manifest`` that the clone stores under its own path, with the key of the object to copy, which
            is empty if the SST is made of the rows of the WAL.
    """

    path: str
    checkpoint_id: UUID
    manifest: Manifest
    named_range: KeyRange | None = None
    own: Mapping[Ulid, str] = field(default_factory=dict)


def cloned(source: Source, new_uuid: NewUuid) -> Manifest:
    """Return version 1 of a clone of one source: not initialized, without checkpoints, with the epochs of the source.

    Raises:
        InvalidDbState: the source borrows SSTs without a checkpoint that pins them.
        InvalidUnion: two databases have an SST of the same id.
    """
    borrowed = [replace(entry, final_checkpoint_id=new_uuid()) for entry in inherited(source.manifest)]
    own = ExternalDb(
        path=source.path,
        source_checkpoint_id=source.checkpoint_id,
        final_checkpoint_id=new_uuid(),
        sst_ids=owned_ssts(source),
    )
    external_dbs = (*borrowed, own)
    require_one_place(external_dbs)
    return replace(source.manifest, initialized=False, checkpoints=(), external_dbs=external_dbs)


def inherited(manifest: Manifest) -> tuple[ExternalDb, ...]:
    """Return what a clone of this database borrows through it, before the clone has checkpoints of its own.

    The source checkpoint of each entry is the one that ``manifest`` holds, not a user's, which may be deleted.
    Entries without SSTs are left out: nothing is read through them, and GC may release their checkpoint at any time.

    Raises:
        InvalidDbState: an entry has no checkpoint that pins it.
    """
    return tuple(_handed_on(entry) for entry in manifest.external_dbs if entry.sst_ids)


def owned_ssts(source: Source) -> tuple[Ulid, ...]:
    """Return the ids of the SSTs under the database's own path, sorted."""
    borrowed = {sst_id for entry in source.manifest.external_dbs for sst_id in entry.sst_ids}
    return tuple(sorted(source.manifest.ssts().keys() - borrowed - source.own.keys()))


def places_of(source: Source) -> dict[Ulid, str]:
    """Return the path of the database that stores each SST, without those that the clone stores itself."""
    places = {sst_id: entry.path for entry in source.manifest.external_dbs for sst_id in entry.sst_ids}
    return {sst_id: places.get(sst_id, source.path) for sst_id in source.manifest.ssts().keys() - source.own.keys()}


def borrowings(source: Source) -> tuple[ExternalDb, ...]:
    """Return what a union borrows through one source: the source's own SSTs, if any, and those that it borrows.

    Raises:
        InvalidDbState: see ``inherited``.
    """
    owned = owned_ssts(source)
    if not owned:
        return inherited(source.manifest)
    own = ExternalDb(path=source.path, source_checkpoint_id=source.checkpoint_id, sst_ids=owned)
    return (*inherited(source.manifest), own)


def require_one_place(external_dbs: Iterable[ExternalDb]) -> None:
    """Check that no SST id occurs in two databases: only one of the objects could be read.

    Raises:
        InvalidUnion: one does.
    """
    places: dict[Ulid, str] = {}
    for entry in external_dbs:
        for sst_id in entry.sst_ids:
            if places.setdefault(sst_id, entry.path) != entry.path:
                raise InvalidUnion(f"sst id collision: {sst_id} is in {places[sst_id]} and in {entry.path}")


def _handed_on(entry: ExternalDb) -> ExternalDb:
    if entry.final_checkpoint_id is None:
        raise InvalidDbState(
            f"SSTs of {entry.path} are borrowed without a checkpoint there, so a clone could lose them"
        )
    return ExternalDb(path=entry.path, source_checkpoint_id=entry.final_checkpoint_id, sst_ids=entry.sst_ids)
