"""The port of a WAL that is kept outside of an object store: numbered files of bytes for each database.

``WalBackendStore`` shows the files of a backend as the objects below ``wal/``, so the writer, its fence, replay,
readers, clones and GC use a backend as they use a store.  The manifest records the name of the backend; a process that
has another one, or none, is refused (docs/how-to/wal-backend.md).

Source: SlateDB rfcs/0030, slatedb/src/wal/mod.rs (``WriterInit``, ``WalReader``, ``WalGc``, ``WalAdmin``).
"""

from collections.abc import Sequence
from typing import Protocol

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WalEntry:
    """A file of a backend.

    ``size``: its bytes, 0 for a fence.  ``written_ms``: milliseconds since 1970 by the clock of the backend.
    ``epoch``, ``put_id``: as they were passed to ``put``.
    """

    id: int
    size: int
    written_ms: int
    epoch: int | None = None
    put_id: str = ""


class WalBackend(Protocol):
    """The WALs of databases, by the paths of these databases.

    A method that cannot reach its storage raises ``UnavailableError`` or an ``OSError``, and is called again.  A put
    whose response was lost is called again with the same ``put_id``; it may then return false, because the engine
    compares ``put_id`` with that of the file.  After ``put`` has returned, every process sees the file.
    """

    @property
    def name(self) -> str:
        """The name of the backend, which manifests record; letters, digits, ``-``, ``_`` and ``.``."""
        ...

    async def put(self, path: str, wal_id: int, data: bytes, *, epoch: int | None, put_id: str) -> bool:
        """Make a file durable; return false, and change nothing, if ``wal_id`` is taken.

        Of two concurrent calls with one id only one may return true: this is what fences an older writer.  A backend
        may also refuse an ``epoch`` below the highest that it has seen for ``path``.

        Args:
            path: the database.
            wal_id: the id of the file; a writer uses consecutive ones.
            data: the file, which the backend need not understand; empty for a fence.
            epoch: the epoch of the writer; ``None`` for a copy in a clone.
            put_id: the id of this put.
        """
        ...

    async def read(self, path: str, wal_id: int) -> BytesLike | None:
        """Return the bytes of a file; ``None`` if it does not exist."""
        ...

    async def stat(self, path: str, wal_id: int) -> WalEntry | None:
        """Describe a file; ``None`` if it does not exist."""
        ...

    async def list(self, path: str, *, after: int, limit: int) -> Sequence[WalEntry]:
        """Describe the first ``limit`` files with ids above ``after``, ascending by id."""
        ...

    async def delete(self, path: str, wal_ids: Sequence[int]) -> None:
        """Delete files; a missing one is no error."""
        ...
