"""The ranges of the attempts to create one clone: ``gc/visible_range_ID``, an object for each.

Several processes may create a clone at one path, each with a range of its own.  The first manifest decides which of
them has made it, so the clone has to show the range of the attempt that wrote this manifest:

1. An attempt has an id that is in its first manifest (``attempt_of``), and stores its range under a name with the id
   before it creates the manifest.  No other attempt writes that name.
2. Each process that completes the clone reads the object of the manifest's id, refuses a request of another range, and
   stores the same bytes in ``gc/visible_range`` before the clone is initialized.  An attempt that lost never does.
3. The objects are deleted once the clone is initialized.  If the object of a half-built clone is gone, another process
   has completed the clone meanwhile, or an earlier release or SlateDB has begun it.

A store of the two-phase mode has no conditions for these objects.  Steps 1 to 3 need none: all processes that write
``gc/visible_range`` write the same bytes.  But a late duplicate of a put for an earlier clone at the path, destroyed
since, could replace them there.

Source: docs/reference/protocol.md 11.
"""

from contextlib import suppress
from uuid import UUID

from shale.errors import AlreadyExists, ShaleError
from shale.format.names import attempt_range_key, gc_prefix, parse_attempt_range_key, visible_range_key
from shale.protocol.visible_range import encode_visible_range, store_visible_range
from shale.store.port import CREATE, ObjectStore
from shale.store.wrapper import cas_of
from shale.types import EVERYTHING, CasMode, KeyRange, Manifest


def attempt_of(manifest: Manifest) -> UUID | None:
    """Return the id of the attempt that wrote the first manifest of a clone.

    ``None``: a union of databases without SSTs borrows nothing.  Only the attempt that created it completes it.
    """
    return next((entry.final_checkpoint_id for entry in manifest.external_dbs), None)


class AttemptRanges:
    """The ranges of the attempts at one path; this process makes some of the attempts."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root
        self._own: set[UUID] = set()

    async def store(self, attempt: UUID, keys: KeyRange | None) -> bytes:
        """Store the range of an attempt of this process, whose manifest is not written yet; return what is stored.

        If the clone has no range yet, it gets this one.  So it has one also if its first manifest is completed by a
        process that does not know the objects of attempts.  ``publish`` corrects it if the attempt of another process
        wins.

        Args:
            keys: the range; ``None``: all keys.
        """
        data = encode_visible_range(EVERYTHING if keys is None else keys, attempt)
        self._own.add(attempt)
        await self._store.put(attempt_range_key(self._root, attempt), data)
        if cas_of(self._store) is CasMode.NATIVE:
            # Never replaces a range: this process may be slow, and the clone complete.
            with suppress(AlreadyExists):
                await self._store.put(visible_range_key(self._root), data, mode=CREATE)
        return data

    async def read(self, attempt: UUID | None) -> bytes | None:
        """Read what the attempt of a half-built clone has stored; ``None`` if there is no object."""
        found = None if attempt is None else await self._store.get(attempt_range_key(self._root, attempt))
        return None if found is None else bytes(found.data)

    async def publish(self, data: bytes) -> None:
        """Make the range of the attempt whose manifest is the first one that of the clone.

        Raises:
            UnavailableError: other processes store other ranges at the same time.
        """
        await store_visible_range(self._store, self._root, data)

    async def remove_own(self, *, keep: UUID | None = None) -> None:
        """Delete the objects of this process, except that of the attempt which made a half-built clone."""
        await self._remove(self._own - {keep})

    async def remove_all(self) -> None:
        """Delete the objects of all processes: the clone is initialized."""
        with suppress(ShaleError):
            found = [
                parse_attempt_range_key(self._root, meta.key) for meta in await self._store.list(gc_prefix(self._root))
            ]
            await self._remove({attempt for attempt in found if attempt is not None})

    async def _remove(self, attempts: set[UUID]) -> None:
        # The clone does not need the objects any more, so it is complete also if they stay.
        with suppress(ShaleError):
            for attempt in sorted(attempts):
                await self._store.delete(attempt_range_key(self._root, attempt))
        self._own -= attempts
