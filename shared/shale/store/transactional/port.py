"""The port of transactional stores: what the two-phase mode needs, and no more (docs/reference/protocol.md 12.1).

Every operation is linearizable.  A driver raises ``UnavailableError`` for what may succeed later, so that the retry
layer of the object store repeats the whole operation; repeating any of them is harmless.  A store that is silent is
away as well: a driver waits for an answer for a limited time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shale.errors import InvalidRequestError

SCHEMA_VERSION = 1
NO_TABLES = "there are no tables of commit records: restore them, or run 'shale cas init' for a new store"
ANSWER_S = 15.0
"""How long a transactional store may take to answer a statement."""


class Slot(NamedTuple):
    """The place of a numbered file: its directory, without the last slash, and its id."""

    namespace: str
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The commit of one object.

    Args:
        destination: key of the object.
        source: key of the staged object, which has the same bytes.
        put_id: id of the put; tells an own record from another process's.
        checksum: SHA-256 of the bytes, hexadecimal.
        size: number of bytes.
        created_at_ms: wall time of the process that made the record.
        is_committed: whether the destination was written.
        is_deleted: whether the collector deletes the object: a tombstone.
    """

    destination: str
    source: str
    put_id: str
    checksum: str
    size: int
    created_at_ms: int
    is_committed: bool = False
    is_deleted: bool = False


def require_schema(url: str, version: int | None) -> None:
    """Check the version of the schema, before anything else is read or written.

    Raises:
        InvalidRequestError: there is no schema, or a later release has made or changed it.
    """
    if version is None:
        raise InvalidRequestError(f"{url}: {NO_TABLES}")
    if version != SCHEMA_VERSION:
        raise InvalidRequestError(
            f"{url}: the tables of commit records have version {version}, this release knows {SCHEMA_VERSION}"
        )


class TransactionalStore(Protocol):
    """A small linearizable store of commit records and low-water marks."""

    @property
    def url(self) -> str:
        """The location, without credentials, for errors and logs."""
        ...

    async def create_schema(self) -> None:
        """Create what the driver needs, tables for example; success if it exists.

        Raises:
            InvalidRequestError: what exists is of another version.
        """
        ...

    async def schema_version(self) -> int | None:
        """Return the version of the schema; ``None`` if it was never created."""
        ...

    async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
        """Insert a record if its destination has none and its slot is above the low-water mark: the commit point.

        Returns:
            The record that the destination has afterwards, the caller's or an earlier one; ``None``: the slot is at
            or below the mark, and nothing was inserted.
        """
        ...

    async def get(self, destination: str) -> CommitRecord | None:
        """Return the record of a destination."""
        ...

    async def set_committed(self, record: CommitRecord) -> None:
        """Mark a record as committed if it is still the same put's."""
        ...

    async def set_deleted(self, destinations: Sequence[str]) -> None:
        """Mark records as deleted; destinations without a record are ignored."""
        ...

    async def remove_deleted(self, destinations: Sequence[str]) -> None:
        """Remove those records that are marked as deleted."""
        ...

    async def unfinished(self, prefix: str) -> Sequence[CommitRecord]:
        """Return the records below ``prefix`` that are not committed or are marked as deleted, in order of keys."""
        ...

    async def records(self, prefix: str) -> Sequence[CommitRecord]:
        """Return all records below ``prefix``, in order of keys."""
        ...

    async def low_water_mark(self, namespace: str) -> int:
        """Return the highest id whose record may have been removed; 0 if there is none."""
        ...

    async def raise_low_water_mark(self, namespace: str, id: int) -> int:  # noqa: A002 - the format's name
        """Raise the mark to at least ``id`` and return it; it never falls."""
        ...

    async def low_water_marks(self, prefix: str) -> dict[str, int]:
        """Return the marks of all namespaces below ``prefix``, also that of the directory ``prefix`` itself."""
        ...

    async def import_committed(self, records: Sequence[CommitRecord]) -> None:
        """Insert records of objects that exist already; destinations that have a record keep it."""
        ...

    async def remove_all(self, *prefixes: str) -> None:
        """Remove all records and marks below each of ``prefixes``, in one step where the store can."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
