"""Sequenced files of one kind as values, guarded by their boundary: the one store behind manifests and compactions.

Source: docs/protocol.md 1.1, 1.4, 1.6, 2.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic

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
from shale.protocol.version_list import VersionList
from shale.protocol.versioned import Namespace, T, Versioned
from shale.store.port import Buffer, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

_SPINS_MAX = 10
_INLINE_BYTES_MAX = 128 * 1024
"""More takes some milliseconds to encode or decode, during which nothing else of the process would run."""
log = get_logger("sequenced")


class VersionedStore(Generic[T]):
    """All versions of one value.  Parts of a process share an instance, and with it the caches."""

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
        self._files = SequencedFiles(store, namespace, env, metrics, self.options)
        self._boundary = Boundary(store, namespace, env, metrics, self.options)
        self._instruments = VersionInstruments(metrics, namespace.resource)
        self._decoded: tuple[Buffer, T] | None = None
        self._is_large = False

    async def list_versions(self) -> VersionList:
        """Every version, ascending by id, zombies behind the boundary included."""
        return await self._files.list_versions()

    async def can_be_repeated(self, file_id: int) -> bool:
        """Whether a version may be there only because the answer to the one before it was lost."""
        return await self._files.can_be_repeated(file_id)

    async def begins_at(self, file_id: int) -> bool:
        """Whether everything before a version, on top of which it was written, is gone and no collector has done it.

        So it is when the whole database was destroyed in between: with its boundary nothing is left that would have
        told the writer of the version.
        """
        if await self._files.has(file_id - 1) or await self._boundary.read() >= file_id - 1:
            return False
        return all(version.id >= file_id for version in await self.list_versions())

    async def read(self, file_id: int) -> T | None:
        """One version, whatever the boundary says: a checkpoint may keep it alive.  ``None``: not there."""
        data = await self._files.read(file_id)
        return None if data is None else await self._decode(file_id, data)

    async def try_read_latest(self) -> Versioned[T] | None:
        """The newest committed version; ``None`` if there is none.

        Raises:
            InvalidObjectState: the boundary stands at or above the highest id, so nothing can be called the latest.
        """
        rejected_id, spins = None, 0
        while True:
            found = await self._files.read_latest_unchecked()
            if found is None:
                return None
            try:
                await self._boundary.check(found.id)
            except ObjectVersionBehindBoundary as error:
                self._files.forget(found.id)
                self._instruments.invalidated()
                log.warning(
                    Event.SEQUENCED_READ_BEHIND_BOUNDARY,
                    resource=self.namespace.resource,
                    id=found.id,
                    boundary=error.boundary,
                )
                spins = spins + 1 if found.id == rejected_id else 1
                rejected_id = found.id
                if spins >= _SPINS_MAX:
                    message = f"boundary {error.boundary} is at or above the latest id {found.id}"
                    raise InvalidObjectState(message, path=self.namespace.boundary_key) from error
            else:
                return await self._value_of(found)

    async def read_base(self) -> Versioned[T] | None:
        """The newest version, to be built upon after a lost create; ``None`` if there is none.

        It is not held against the boundary: whoever writes on top of it asks the boundary after the create, and
        whoever then has nothing to write has to read again.
        """
        found = await self._files.read_latest_after_conflict()
        return None if found is None else await self._value_of(found)

    async def read_latest(self) -> Versioned[T]:
        """Like ``try_read_latest``, where absence is an error.

        Raises:
            LatestRecordMissing: there is no version at all.
        """
        latest = await self.try_read_latest()
        if latest is None:
            raise LatestRecordMissing(f"no {self.namespace.resource} below {self.namespace.directory}")
        return latest

    async def load(self) -> Stored[T]:
        """The newest version, ready to be changed.

        Raises:
            LatestRecordMissing: there is no version at all.
        """
        return Stored(self, await self.read_latest(), self._env)

    async def create_new(self, value: T) -> Stored[T]:
        """Write version 1.

        Raises:
            ObjectVersionExists: somebody else did.
        """
        return Stored(self, await self.commit(None, value), self._env)

    async def commit(self, base_id: int | None, value: T) -> Versioned[T]:
        """Write the version after ``base_id`` and report it only once the boundary has been seen below it.

        Raises:
            ObjectVersionExists: somebody else wrote that version.
            ObjectVersionBehindBoundary: the id was used and deleted while we slept.
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
        self._instruments.committed(file_id, len(data), self._env.clock.now_ms())
        return Versioned(file_id, value)

    async def boundary(self) -> int:
        """The durable boundary."""
        return await self._boundary.read()

    async def advance_boundary(self, target: int) -> None:
        """Forbid every id up to ``target``, which a collector does before it deletes any of them.

        Nothing happens with boundary files disabled (docs/protocol.md 2.7).
        """
        if self.options.boundary_files_enabled:
            await self._boundary.advance(target)

    async def delete(self, file_id: int) -> None:
        """Delete a version.  Only a collector calls this, for ids that its plan has found unneeded."""
        await self._files.delete(file_id)

    async def delete_many(self, file_ids: Sequence[int]) -> Mapping[str, ShaleError]:
        """As ``delete``, for many; returns what went wrong, by key."""
        return await self._files.delete_many(file_ids)

    async def delete_behind_boundary(self, file_id: int) -> None:
        """Delete a version that the boundary covers.

        Raises:
            InvalidObjectState: it does not cover it.
        """
        try:
            await self._boundary.check(file_id)
        except ObjectVersionBehindBoundary:
            await self._files.delete(file_id)
        else:
            raise InvalidObjectState("not behind the boundary", path=self.namespace.key(file_id))

    async def _value_of(self, found: StoredBytes) -> Versioned[T]:
        # Polls meet the same bytes again and again; they are decoded once.
        decoded = self._decoded
        if decoded is None or decoded[0] is not found.data:
            try:
                decoded = (found.data, await self._decode(found.id, found.data))
            except CorruptionError:
                self._files.forget(found.id)  # whoever repairs the file must not have to wait for our cache
                raise
            self._decoded = decoded
            self._instruments.seen(found.id, len(found.data))
        return Versioned(found.id, decoded[1])

    async def _decode(self, file_id: int, data: Buffer) -> T:
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
