"""Checks that the WAL of a database is in the given store and complete, according to the manifest.

Only manifests of version 1 name a store (docs/reference/format.md 4); those with an envelope name a backend.
Every manifest records which files were durable when it was written, and a collector keeps those that replay needs
(docs/reference/protocol.md 4.3, 8.5).
"""

from shale.errors import InvalidDbState, InvalidRequestError
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.types import Manifest

BACKEND_SCHEME = "wal-backend:"
"""The beginning of the URL of a WAL backend; its name follows."""


def backend_name(store: ObjectStore | str | None) -> str | None:
    """Return the name of the backend that is given as the store of a WAL; ``None`` for other stores."""
    url = store if store is None or isinstance(store, str) else store.url
    return url.removeprefix(BACKEND_SCHEME) if url is not None and url.startswith(BACKEND_SCHEME) else None


def require_wal_store(manifest: Manifest, place: str, given: ObjectStore | str | None) -> None:
    """Check that the caller gave the WAL's store or backend that the manifest names; else rows would be missing.

    Args:
        manifest: the manifest of the database.
        place: the location of the database, for the error.
        given: the store that the caller gave for the WAL; ``None``: it is in the store of the database.

    Raises:
        InvalidRequestError: names the store or the backend to give.
    """
    wanted, found = manifest.wal_backend, backend_name(given)
    if wanted != found:
        kept = "a store" if wanted is None else f"the backend {wanted!r}, which is passed as wal"
        passed = "none was passed" if found is None else f"{found!r} was passed"
        raise InvalidRequestError(f"the database at {place or '/'} keeps its WAL in {kept}; of backends, {passed}")
    uri = manifest.wal_object_store_uri
    if uri is not None and given is None:
        raise InvalidRequestError(f"the database at {place or '/'} keeps its WAL in {uri}: name it with wal_store")


def is_wal_truncated(manifest: Manifest, last_id: int) -> bool:
    """Return whether a WAL that ends with ``last_id`` lacks files that this manifest names."""
    return last_id < manifest.next_wal_sst_id - 1


def wal_truncated(wal: WalStore, last_id: int, manifest: Manifest) -> InvalidDbState:
    """Return the error for a WAL that ends with ``last_id`` although its manifest names later files."""
    return InvalidDbState(
        f"{wal.key(last_id + 1)} does not exist, though the manifest names files up to {manifest.next_wal_sst_id - 1}:"
        " the WAL is in a store of its own (name it with wal_store), or the file was deleted"
    )


async def require_complete_wal(wal: WalStore, manifests: ManifestStore, manifest: Manifest, last_id: int) -> None:
    """Check that no rows are certainly missing after ``last_id``, the presumed end of the WAL.

    Releases before 0.17 counted a file when they froze its rows, so after a crash ``next_wal_sst_id`` may be ahead of
    a log that is whole, and stays so in the manifests that are derived from it.  It is trusted if there is no WAL
    file at all, or one after the missing file: files are written in order, and every writer writes a fence.

    Args:
        manifest: read before the end was searched for.
        last_id: at or above its ``replay_after_wal_id``.

    Raises:
        InvalidDbState: names the file.
    """
    if not is_wal_truncated(manifest, last_id):
        return
    listed = {int(file.id) for file in await wal.list()}
    if last_id + 1 in listed:
        return  # It was written after the search.
    if listed and not any(last_id < wal_id < manifest.next_wal_sst_id for wal_id in listed):
        return
    # A collector may have removed files, but only those that the newest manifest no longer needs.
    if (await manifests.read_latest()).value.replay_after_wal_id <= last_id:
        raise wal_truncated(wal, last_id, manifest)
