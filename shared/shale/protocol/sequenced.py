"""Sequenced files: an append-only, numbered chain of snapshots; creating file ``id`` is the commit point.

This module does not know boundaries: its latest file may be one that a suspended writer created again after the
collector had deleted it.  ``versioned_store`` adds that check.

Source: docs/reference/protocol.md 1; SlateDB slatedb-txn-obj/src/object_store.rs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic

import anyio

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import AlreadyExists, ObjectVersionExists, ShaleError
from shale.protocol.backoff import conflict_delay_s
from shale.protocol.instruments import SequencedInstruments
from shale.protocol.options import ProtocolOptions
from shale.protocol.versioned import Namespace, T, VersionList, VersionMeta
from shale.store.port import CREATE, PUT_ID, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

MAX_PROBES = 4
OLD_LISTS_MAX = 20
"""Lists that lack a file that exists are repeated this often, over some ten seconds."""
_NEAR = ("file:", "memory:")
log = get_logger("sequenced")


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The newest file that this process knows.

    ``confirmed_at`` is the monotonic time at which the request that proved it newest was *started*: a listing, our
    own create, or a probe that found no later file.  ``modified_ms``: when it was written, if a listing told it.
    """

    id: int
    data: BytesLike
    confirmed_at: float
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A file that this process created; not proven newest if the proof for its base was too old afterwards."""

    id: int
    is_proven_newest: bool


class SequencedFiles(Generic[T]):
    """The files of one namespace, and a cache of the newest."""

    def __init__(
        self,
        store: ObjectStore,
        namespace: Namespace[T],
        env: Env,
        metrics: Metrics,
        options: ProtocolOptions,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._env = env
        self._max_staleness_s = options.probe_max_staleness_s
        self._instruments = SequencedInstruments(metrics, namespace.resource)
        self._newest: StoredBytes | None = None
        self._empty_confirmed_at: float | None = None

    async def list_versions(self) -> VersionList:
        """Every file with a canonical name, ascending by id; other names are ignored with a warning."""
        versions = VersionList()
        async for page in self._store.list_pages(self._namespace.directory):
            for meta in page:
                file_id = self._namespace.parse(meta.key)
                if file_id is not None:  # canonical names have the same number of digits, so keys have the order of ids
                    versions.append(VersionMeta(file_id, meta.last_modified_ms, meta.size))
                elif "#" not in meta.key:  # the name of a local store's staging file
                    log.warning(Event.SEQUENCED_LIST_UNKNOWN_FILE, object=meta.key)
        return versions

    async def may_be_duplicate(self, file_id: int) -> bool:
        """Return whether this file may repeat the one before it, because the response to an earlier put was lost.

        Responses of a directory or of memory are not lost.  Other stores need the id of the put, kept as metadata of
        the object, to recognise a process's own put; SlateDB writes the same id.
        """
        if self._store.url.startswith(_NEAR):
            return False
        meta = await self._store.head(self._namespace.key(file_id))
        return meta is None or PUT_ID not in (meta.attributes or {})

    async def has(self, file_id: int) -> bool:
        """Return whether a file exists."""
        return await self._store.head(self._namespace.key(file_id)) is not None

    async def has_known(self) -> bool:
        """Return whether the newest file that was seen still exists."""
        return self._newest is not None and await self.has(self._newest.id)

    async def read(self, file_id: int) -> BytesLike | None:
        """Read a file; ``None`` if it does not exist."""
        result = await self._store.get(self._namespace.key(file_id))
        return None if result is None else result.data

    async def read_latest_unchecked(self) -> StoredBytes | None:
        """Return the file with the highest id; ``None`` if there is none.

        With a cache this probes the next few ids, which is cheaper than a listing.  Finding no file
        there proves something only if no collector can have deleted it, hence the limit on age.
        """
        known = self._newest
        if known is not None and self._is_fresh(known.confirmed_at):
            latest = await self._probe_from(known)
            if latest is not None:
                return latest
        else:
            self._instruments.cold()
        return await self._read_latest_cold()

    async def read_latest_after_conflict(self) -> StoredBytes | None:
        """Return what ``read_latest_unchecked`` does, after a lost create, which proves that there is a newer file.

        Probes two ids at once, which takes half the time and no more requests, because there usually is one newer file
        and none after it.
        """
        known = self._newest
        if known is not None and self._is_fresh(known.confirmed_at):
            latest = await self._probe_from(known, width=2)
            if latest is not None:
                return latest
        return await self._read_latest_cold()

    async def create(self, base_id: int | None, data: bytes) -> Created:
        """Create the file after ``base_id``, from whose value ``data`` was derived.

        Raises:
            ObjectVersionExists: another process created it.
        """
        file_id = 1 if base_id is None else base_id + 1
        known = self._newest
        if known is not None and known.id >= file_id:  # the create would lose, or use an id again
            raise ObjectVersionExists(f"{self._namespace.key(file_id)}: version {known.id} is known already")
        base_confirmed_at = self._confirmed_at(base_id)
        stored = StoredBytes(file_id, data, self._now())
        try:
            await self._store.put(self._namespace.key(file_id), data, mode=CREATE)
        except AlreadyExists as error:
            raise ObjectVersionExists(f"{self._namespace.key(file_id)} exists") from error
        created = Created(file_id, is_proven_newest=self._is_fresh(base_confirmed_at))
        if created.is_proven_newest:
            self._offer(stored)
        return created

    async def require_newest(self, created: Created) -> None:
        """Check that a file created so late that its id may have been used before is the newest.

        Raises:
            ObjectVersionExists: it is not; the collector will delete it.

        Source: docs/reference/protocol.md 2.7.
        """
        versions = [] if created.is_proven_newest else await self.list_versions()
        if versions and versions[-1].id != created.id:
            raise ObjectVersionExists(f"{self._namespace.key(created.id)} was created too late to be the newest")

    async def delete(self, file_id: int) -> None:
        """Delete one file, unconditionally."""
        await self._store.delete(self._namespace.key(file_id))
        self.forget(file_id)

    async def delete_many(self, file_ids: Sequence[int]) -> Mapping[str, ShaleError]:
        """Delete files, unconditionally, and return the errors by key."""
        problems = await self._store.delete_many([self._namespace.key(file_id) for file_id in file_ids])
        for file_id in file_ids:
            self.forget(file_id)
        return problems

    def forget(self, file_id: int) -> None:
        """Drop the cache if it holds exactly this file."""
        if self._newest is not None and self._newest.id == file_id:
            self._newest = None

    async def _probe_from(self, known: StoredBytes, *, width: int = 1) -> StoredBytes | None:
        """Probe forward from a known file, ``width`` ids at a time; ``None`` if a listing must decide."""
        probes = 0
        while probes < MAX_PROBES:
            started = self._now()
            for data in await self._read_next(known.id, width):
                if data is None:
                    self._instruments.probed(probes)
                    if not self._is_fresh(known.confirmed_at):
                        self._instruments.cold()
                        return None
                    self._instruments.hit()
                    known = replace(known, confirmed_at=started)
                    self._offer(known)
                    return known
                # The hit proves nothing about later files, so the age stays that of the older proof.
                known = StoredBytes(known.id + 1, data, known.confirmed_at)
                self._offer(known)
                probes += 1
        self._instruments.probed(MAX_PROBES)
        self._instruments.list_fallback()
        log.debug(
            Event.SEQUENCED_READ_LIST_FALLBACK,
            resource=self._namespace.resource,
            last_seen_id=known.id,
            probes=MAX_PROBES,
        )
        return None

    async def _read_next(self, known_id: int, count: int) -> list[BytesLike | None]:
        """Read the files after a known one at the same time."""
        return await gather([partial(self.read, known_id + 1 + number) for number in range(count)])

    async def _read_latest_cold(self) -> StoredBytes | None:
        vanished = old_lists = 0
        while True:
            started, before = self._now(), self._newest
            versions = await self.list_versions()
            newest_id = versions[-1].id if versions else 0
            if before is not None and newest_id < before.id and old_lists < OLD_LISTS_MAX and await self.has(before.id):
                # The store demonstrably had this file before it listed: its list is old, and no file is lost.
                old_lists += 1
                log.warning(Event.SEQUENCED_LIST_OLD, object=self._namespace.key(before.id), listed_id=newest_id)
                await anyio.sleep(conflict_delay_s(old_lists, self._env.rng))
                continue
            if not versions:
                if before is not None:
                    self.forget(before.id)
                self._empty_confirmed_at = started
                return None
            known = self._newest
            data = known.data if known is not None and known.id == newest_id else await self.read(newest_id)
            if data is not None:
                newest = StoredBytes(newest_id, data, started, versions[-1].last_modified_ms)
                self._offer(newest)
                return newest
            # A collector deleted it between the two requests, so there is a newer one.
            log.warning(Event.SEQUENCED_LIST_MISSING, object=self._namespace.key(newest_id))
            vanished += 1
            await anyio.sleep(conflict_delay_s(vanished, self._env.rng))

    def _confirmed_at(self, base_id: int | None) -> float | None:
        if base_id is None:
            return self._empty_confirmed_at
        known = self._newest
        return known.confirmed_at if known is not None and known.id == base_id else None

    def _is_fresh(self, confirmed_at: float | None) -> bool:
        return confirmed_at is not None and self._now() - confirmed_at < self._max_staleness_s

    def _now(self) -> float:
        return self._env.clock.monotonic_s()

    def _offer(self, found: StoredBytes) -> None:
        """Cache a file unless a newer one, or a newer proof for the same one, is cached."""
        known = self._newest
        if known is None or (found.id, found.confirmed_at) >= (known.id, known.confirmed_at):
            self._newest = found
