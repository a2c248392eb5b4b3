"""Sequenced files of one kind as values, guarded by their boundary: the store of manifests and of compactions files.

Source: docs/reference/protocol.md 1.1, 1.4, 1.6, 2.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Generic

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import (
    CorruptionError,
    InvalidObjectState,
    LatestRecordMissing,
    ObjectVersionBehindBoundary,
    ShaleError,
)
from shale.protocol.boundary import Boundary
from shale.protocol.instruments import UpdateInstruments, VersionInstruments
from shale.protocol.options import ProtocolOptions
from shale.protocol.sequenced import SequencedFiles, StoredBytes
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Namespace, T, Versioned, VersionList
from shale.store.location import remains_of_database, similar_database
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

_SPINS_MAX = 10
_INLINE_BYTES_MAX = 128 * 1024
"""Larger files take milliseconds to encode or decode, which would block the event loop."""
_CACHED_BYTES_MAX = 32 * 1024
"""Larger files are not cached decoded: all caches together stay within a few megabytes."""
_CACHED_VALUES_MAX = 64
log = get_logger("sequenced")


class VersionedStore(Generic[T]):
    """All versions of one value.  Parts of a process share an instance, with its caches."""

    def __init__(
        self,
        store: ObjectStore,
        namespace: Namespace[T],
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        self.options = options if options is not None else ProtocolOptions()
        self.namespace = namespace
        metrics = metrics if metrics is not None else Metrics()
        self.updates = UpdateInstruments(metrics, namespace.resource, self.options.component)
        self._env = env
        self._store_url = store.url
        self._place = f"{store.url}/{namespace.directory}"
        self._files = SequencedFiles(store, namespace, env, metrics, self.options)
        self._boundary = Boundary(store, namespace, env, metrics, self.options)
        self._instruments = VersionInstruments(metrics, namespace.resource)
        self._decoded: tuple[BytesLike, T] | None = None
        self._is_large = False

    async def list_versions(self) -> VersionList:
        """List every version, ascending by id, including those at or below the boundary."""
        return await self._files.list_versions()

    async def may_be_duplicate(self, file_id: int) -> bool:
        """Return whether a version may exist only because the response to the one before it was lost."""
        return await self._files.may_be_duplicate(file_id)

    async def has_lost_history(self, file_id: int) -> bool:
        """Return whether every version before this one is gone, and no collector has removed them.

        This is so when the whole database was destroyed in between: its boundary is deleted too, so the writer of the
        version could not notice.
        """
        if await self._files.has(file_id - 1) or await self._boundary.read() >= file_id - 1:
            return False
        return all(version.id >= file_id for version in await self.list_versions())

    async def read(self, file_id: int) -> T | None:
        """Read one version, also below the boundary, where a checkpoint may keep it; ``None`` if it does not exist."""
        data = await self._files.read(file_id)
        return None if data is None else await self._decode(file_id, data)

    async def try_read_latest(self) -> Versioned[T] | None:
        """Return the newest committed version; ``None`` if there is none.

        Raises:
            InvalidObjectState: the boundary is at or above the highest id, so no version is the latest.
        """
        rejected_id, spins = None, 0
        while True:
            newest = await self._files.read_latest_unchecked()
            if newest is None:
                return None
            try:
                await self._boundary.check(newest.id)
            except ObjectVersionBehindBoundary as error:
                self._files.forget(newest.id)
                self._instruments.invalidated()
                log.warning(
                    Event.SEQUENCED_READ_BEHIND_BOUNDARY,
                    resource=self.namespace.resource,
                    id=newest.id,
                    boundary=error.boundary,
                )
                spins = spins + 1 if newest.id == rejected_id else 1
                rejected_id = newest.id
                if spins >= _SPINS_MAX:
                    message = f"boundary {error.boundary} is at or above the latest id {newest.id}"
                    raise InvalidObjectState(message, path=self.namespace.boundary_key) from error
            else:
                return await self._value_of(newest)

    async def has_known(self) -> bool:
        """Return whether the newest version that was seen still exists."""
        return await self._files.has_known()

    async def read_base(self) -> Versioned[T] | None:
        """Return the newest version, to write the next one after a lost create; ``None`` if there is none.

        It is not compared with the boundary, because the caller's create is.  A caller that then writes nothing must
        read again.
        """
        latest = await self._files.read_latest_after_conflict()
        return None if latest is None else await self._value_of(latest)

    async def read_latest(self) -> Versioned[T]:
        """Return the newest committed version.

        Raises:
            LatestRecordMissing: there is no version at all.
        """
        latest = await self.try_read_latest()
        if latest is None:
            raise self._missing()
        return latest

    def _missing(self) -> LatestRecordMissing:
        what = f"no {self.namespace.resource} below {self.namespace.directory} in {self._store_url}"
        if self.namespace.resource != "manifest":
            return LatestRecordMissing(what)
        root = self.namespace.directory.rstrip("/").rpartition("/")[0]
        if remains := remains_of_database(self._store_url, root):
            return LatestRecordMissing(
                f"{what}, although {' and '.join(remains)} have files of a database: restore the manifests; do not "
                "open it for writing, which would create an empty database there"
            )
        hint = similar_database(self._store_url, root)
        return LatestRecordMissing(
            f"{what}: there is no database at {root or '/'}; check the URL, or open it for writing to create it{hint}"
        )

    async def load(self) -> Stored[T]:
        """Return the newest version as a holder that can commit changes.

        Raises:
            LatestRecordMissing: there is no version at all.
        """
        return Stored(self, await self.read_latest(), self._env)

    async def create_new(self, value: T) -> Stored[T]:
        """Write version 1.

        Raises:
            ObjectVersionExists: another process did.
        """
        return Stored(self, await self.commit(None, value), self._env)

    async def commit(self, base_id: int | None, value: T) -> Versioned[T]:
        """Write the version after ``base_id``; return after the boundary was read below it.

        Raises:
            ObjectVersionExists: another process wrote that version.
            ObjectVersionBehindBoundary: the id was used and deleted while this process was suspended.
        """
        data = await self._encode(value)
        created = await self._files.create(base_id, data)
        file_id = created.id
        try:
            await self._boundary.check(file_id)
        except ObjectVersionBehindBoundary as error:
            self._files.forget(file_id)
            self._instruments.rejected_write()
            log.warning(
                Event.BOUNDARY_WRITE_REJECTED,
                resource=self.namespace.resource,
                id=file_id,
                boundary=error.boundary,
            )
            raise
        await self._files.require_newest(created)
        if self.namespace.is_lossless(value):
            self._decoded = (data, value)
        self._instruments.committed(file_id, len(data), self._env.clock.now_ms())
        self._env.commits.notify(self._place, self)
        return Versioned(file_id, value)

    def on_other_commit(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function after each commit by another store object of this process, until the context ends."""
        return self._env.commits.listening(self._place, self, call)

    async def boundary(self) -> int:
        """Return the durable boundary."""
        return await self._boundary.read()

    async def advance_boundary(self, target: int) -> None:
        """Forbid every id up to ``target``, as a collector must before it deletes any of them.

        Nothing happens with boundary files disabled (docs/reference/protocol.md 2.7).
        """
        if self.options.boundary_files_enabled:
            await self._boundary.advance(target)

    async def delete(self, file_id: int) -> None:
        """Delete a version.  Only a collector calls this, for ids that its plan does not need."""
        await self._files.delete(file_id)

    async def delete_many(self, file_ids: Sequence[int]) -> Mapping[str, ShaleError]:
        """Delete versions and return the errors by key; see ``delete``."""
        return await self._files.delete_many(file_ids)

    async def delete_behind_boundary(self, file_id: int) -> None:
        """Delete a version that the boundary covers.

        Raises:
            InvalidObjectState: the boundary is below the version.
        """
        try:
            await self._boundary.check(file_id)
        except ObjectVersionBehindBoundary:
            await self._files.delete(file_id)
        else:
            raise InvalidObjectState("the version is above the boundary", path=self.namespace.key(file_id))

    async def _value_of(self, found: StoredBytes) -> Versioned[T]:
        # Polls read the same bytes again and again, also those that this store has written; they are decoded once.
        decoded = self._decoded
        if decoded is None or not _are_equal(decoded[0], found.data):
            try:
                decoded = (found.data, await self._decode(found.id, found.data))
            except CorruptionError:
                self._files.forget(found.id)  # a repaired file must be read at once
                raise
            self.namespace.accept(decoded[1], self.namespace.key(found.id))
            self._decoded = decoded
            self._instruments.seen(found.id, len(found.data))
        return Versioned(found.id, decoded[1], found.modified_ms)

    async def _decode(self, file_id: int, data: BytesLike) -> T:
        key = self.namespace.key(file_id)
        decode = partial(self.namespace.decode, data, key)
        self._is_large = len(data) > _INLINE_BYTES_MAX
        try:
            return await self._env.cpu.run(decode) if self._is_large else decode()
        except CorruptionError as error:
            self._instruments.corrupt()
            raise error.at(key) from None

    async def _encode(self, value: T) -> bytes:
        encode = partial(self.namespace.encode, value)
        data = await self._env.cpu.run(encode) if self._is_large else encode()
        self._is_large = len(data) > _INLINE_BYTES_MAX
        return data


def _are_equal(left: BytesLike, right: BytesLike) -> bool:
    """Compare at the speed of memory, which ``==`` of views is not."""
    return left is right or (len(left) == len(right) and bytes(left) == bytes(right))


class DatabaseStore(VersionedStore[T], ABC):
    """All versions of one value of the database at ``root``."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        super().__init__(store, self.namespace_of(root), env, metrics, options)

    @staticmethod
    @abstractmethod
    def namespace_of(root: str) -> Namespace[T]:
        """Return the namespace of the value; each kind of file has its own."""


def cached_decoder(decode: Callable[[bytes], T]) -> Callable[[BytesLike, str], T]:
    """Return a decoder of ``(data, path)`` that caches the last values of small files, for all stores of a process.

    A collector reads the manifest of every checkpoint in every pass, and a writer, a compactor and a reader in one
    process read the same versions.  Values are immutable, so readers of equal bytes share one.  Errors are not cached,
    because they name their ``path``.
    """
    remembered = lru_cache(maxsize=_CACHED_VALUES_MAX)(decode)

    def decoded(data: BytesLike, path: str) -> T:
        try:
            if len(data) > _CACHED_BYTES_MAX:
                return decode(bytes(data))
            return remembered(bytes(data))
        except CorruptionError as error:
            raise error.at(path) from None

    return decoded
