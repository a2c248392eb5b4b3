"""Where the WAL of a database is, as far as its manifest says, and whether what is found there can be all of it.

Only manifests of version 1 name a store (docs/format.md 4).  What every manifest says is which files were durable when
it was written, and a collector keeps all of them that replay needs (docs/protocol.md 4.3, 8.5).
"""

from shale.errors import InvalidDbState, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.types import Manifest


def require_wal_place(manifest: Manifest, place: str, *, is_named: bool) -> None:
    """Return unless the WAL is in a store of its own that nobody named: none of its rows would be found.

    Args:
        manifest: of the database.
        place: the database, for the message.
        is_named: whether a store for the WAL was given.

    Raises:
        InvalidRequestError: says which store to name.
    """
    uri = manifest.wal_object_store_uri
    if uri is not None and not is_named:
        raise InvalidRequestError(f"the database at {place or '/'} keeps its WAL in {uri}: name it with wal_store")


def is_cut_short(manifest: Manifest, last_id: int) -> bool:
    """Whether a WAL that ends with ``last_id`` lacks files that this manifest knows of."""
    return last_id < manifest.next_wal_sst_id - 1


def cut_short(wal: WalStore, last_id: int, manifest: Manifest) -> InvalidDbState:
    """The error for a WAL that ends with ``last_id`` although its manifest knows of more."""
    return InvalidDbState(
        f"{wal.key(last_id + 1)} is not there, though the manifest knows of files up to {manifest.next_wal_sst_id - 1}:"
        " the WAL is in a store of its own (name it with wal_store), or the file was deleted"
    )


async def require_known_files(wal: WalStore, manifests: ManifestStore, manifest: Manifest, last_id: int) -> None:
    """Return unless it is certain that rows are missing behind ``last_id``, which was taken for the end of the WAL.

    Releases before 0.17 counted a file when they froze its rows, so after a crash ``next_wal_sst_id`` may be ahead of
    a log that is whole, and stays so in the manifests that are derived from it.  It is believed where the place holds
    no WAL file at all, or one behind the missing one: files are written in order, and every writer writes a fence.

    Args:
        manifest: read before the end was looked for.
        last_id: at or above its ``replay_after_wal_id``.

    Raises:
        InvalidDbState: names the file.
    """
    if not is_cut_short(manifest, last_id):
        return
    listed = {int(file.id) for file in await wal.list()}
    if last_id + 1 in listed:
        return  # It came in this moment.
    if listed and not any(last_id < wal_id < manifest.next_wal_sst_id for wal_id in listed):
        return
    # Up to here a collector may have taken files, but only those that the newest manifest does not need any more.
    if (await manifests.read_latest()).value.replay_after_wal_id <= last_id:
        raise cut_short(wal, last_id, manifest)
