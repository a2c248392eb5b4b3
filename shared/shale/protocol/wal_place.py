"""Where the WAL of a database is, as far as its manifest says (version 1 of the format only, docs/format.md 4)."""

from shale.errors import InvalidRequestError
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
