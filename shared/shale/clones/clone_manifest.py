"""The first manifest of a clone: the state of its source, and whom its SSTs are borrowed from.

Source: docs/protocol.md 10.2, step 6; 11.2, rules 6 and 7.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from shale.errors import InvalidDbState, InvalidUnion
from shale.types import ExternalDb, KeyRange, Manifest, Ulid

NewUuid = Callable[[], UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A database at one of its checkpoints.

    Args:
        path: as clones store it.
        manifest: of the checkpoint; projected, if that was asked for.
        named_range: the keys that the caller has named for it.
    """

    path: str
    checkpoint_id: UUID
    manifest: Manifest
    named_range: KeyRange | None = None


def cloned(source: Source, new_uuid: NewUuid) -> Manifest:
    """Version 1 of a clone of one source: not initialised, without checkpoints, with the epochs of the source.

    Raises:
        InvalidDbState: the source borrows SSTs that it has no pin on.
        InvalidUnion: one SST id is in two databases.
    """
    borrowed = [replace(entry, final_checkpoint_id=new_uuid()) for entry in inherited(source.manifest)]
    own = ExternalDb(
        path=source.path,
        source_checkpoint_id=source.checkpoint_id,
        final_checkpoint_id=new_uuid(),
        sst_ids=owned_ssts(source.manifest),
    )
    external_dbs = (*borrowed, own)
    require_one_place(external_dbs)
    return replace(source.manifest, initialized=False, checkpoints=(), external_dbs=external_dbs)


def inherited(manifest: Manifest) -> tuple[ExternalDb, ...]:
    """What a clone of this database borrows from others, still without pins of its own.

    Each entry leads to the pin of ``manifest``, not to the checkpoint of a user, who may delete it.  Entries without
    SSTs are left out: nothing is read through them, and their database may release the pin at any time.

    Raises:
        InvalidDbState: an entry has no pin.
    """
    return tuple(_handed_on(entry) for entry in manifest.external_dbs if entry.sst_ids)


def owned_ssts(manifest: Manifest) -> tuple[Ulid, ...]:
    """Ids of the SSTs that lie under the database's own path, sorted."""
    borrowed = {sst_id for entry in manifest.external_dbs for sst_id in entry.sst_ids}
    return tuple(sorted(manifest.ssts().keys() - borrowed))


def borrowings(source: Source) -> tuple[ExternalDb, ...]:
    """What a union borrows of one source and through it: its own SSTs, if it has any, and what it borrows itself.

    Raises:
        InvalidDbState: see ``inherited``.
    """
    owned = owned_ssts(source.manifest)
    if not owned:
        return inherited(source.manifest)
    own = ExternalDb(path=source.path, source_checkpoint_id=source.checkpoint_id, sst_ids=owned)
    return (*inherited(source.manifest), own)


def require_one_place(external_dbs: Iterable[ExternalDb]) -> None:
    """Return unless one id of an SST stands for objects of two databases, of which only one could be read.

    Raises:
        InvalidUnion: it does.
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
