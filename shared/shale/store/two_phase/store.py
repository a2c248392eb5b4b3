"""A store without conditional writes, with creates and boundaries through a transactional store.

Everything above sees an ordinary ``ObjectStore``.  Numbered files and the marker of a destroyed database are created
by ``TwoPhaseCommits``; boundary files are low-water marks; all other objects pass unchanged.

Source: docs/reference/protocol.md 12.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, cast

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import AlreadyExists, Precondition, ShaleError
from shale.format.boundary import encode_boundary
from shale.store.adapter_errors import NotSupported
from shale.store.port import (
    NOT_MODIFIED,
    OVERWRITE,
    PUT_ID,
    Create,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    ObjectStore,
    OpenLocal,
    Overwrite,
    PutMode,
    Update,
    open_local_of,
)
from shale.store.transactional.port import TransactionalStore
from shale.store.two_phase.commit import Parts, TwoPhaseCommits
from shale.store.two_phase.finisher import BackgroundFinisher
from shale.store.two_phase.identity import require_same_id
from shale.store.two_phase.names import is_emulated, is_sequenced_directory, namespace_of_boundary, parse_staged_key
from shale.store.wrapper import StoreWrapper
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import AckAfter, CasMode

T = TypeVar("T")
log = get_logger("two_phase")


class TwoPhaseStore(StoreWrapper):
    """``objects`` with conditional writes by ``records``.

    Args:
        ack_after: with ``RECORD`` a create returns at its commit point, two requests earlier, and the copy is made in
            the background; a reader that comes before it makes the copy.
        checks_id: before the first use of a record, check that the records belong to ``objects``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        records: TransactionalStore,
        env: Env,
        ack_after: AckAfter = AckAfter.COPY,
        *,
        checks_id: bool = False,
    ) -> None:
        super().__init__(objects)
        self._must_check_id = checks_id
        self._env = env
        self.records = records
        self.commits = TwoPhaseCommits(objects, records, env)
        self._finisher = BackgroundFinisher(self.commits) if ack_after is AckAfter.RECORD else None

    @property
    def cas(self) -> CasMode:
        """See ``StoreWrapper``."""
        return CasMode.TWO_PHASE

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``.  Records keep the id of a put where objects keep no metadata."""
        return True

    @property
    def open_local(self) -> OpenLocal | None:
        """See ``LocalReads``."""
        return open_local_of(self._store)

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        if (namespace := namespace_of_boundary(key)) is not None:
            return await self._boundary(key, namespace)
        return await self._or_helped(key, lambda: self._store.get(key))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        if (namespace := namespace_of_boundary(key)) is not None:
            found = await self._boundary(key, namespace)
            return NOT_MODIFIED if found is not None and found.meta.etag == etag else found
        return await self._or_helped(key, lambda: self._store.get_if_changed(key, etag))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self._or_helped(key, lambda: self._store.get_range(key, start, end))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``.  The id of the put comes from the record where the object does not keep it."""
        if (namespace := namespace_of_boundary(key)) is not None:
            found = await self._boundary(key, namespace)
            return None if found is None else found.meta
        meta = await self._or_helped(key, lambda: self._store.head(key))
        if meta is None or PUT_ID in (meta.attributes or {}) or not is_emulated(key):
            return meta
        record = await self.records.get(key)
        if record is None:
            return meta
        return _with_attributes(meta, {**(meta.attributes or {}), PUT_ID: record.put_id})

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        is_one = isinstance(data, BytesLike)  # a variable: type checkers disagree on what the test says
        parts = cast("Parts", (data,) if is_one else data)
        if isinstance(mode, Overwrite):
            sent = attributes if self._store.supports_attributes else None
            return await self._store.put(key, data, attributes=sent)
        if (namespace := namespace_of_boundary(key)) is not None:
            return await self._put_boundary(key, namespace, parts, mode)
        if isinstance(mode, Update):
            raise NotSupported("conditional put", self.url)
        if not is_emulated(key):
            raise NotSupported(f"create of {key}, which would have no record", self.url)
        await self._create(key, parts, attributes)
        return None

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        await self._store.put_stream(key, parts)

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        if not is_emulated(key):
            await self._store.delete(key)
            return
        await self.check_id()
        for error in (await self.commits.delete([key])).values():
            raise error

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``."""
        with_records = [key for key in keys if is_emulated(key)]
        others = [key for key in keys if not is_emulated(key)]
        errors: dict[str, ShaleError] = {}
        if others:
            errors.update(await self._store.delete_many(others))
        if with_records:
            await self.check_id()
            errors.update(await self.commits.delete(with_records))
        return errors

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return [meta async for page in self.list_pages(prefix) for meta in page]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.

        In a directory of numbered files, all puts that were committed before the listing are finished first, and
        staged objects are left out.
        """
        hides_staged = is_sequenced_directory(prefix)
        if hides_staged:
            await self.check_id()
            for record in await self.records.unfinished(prefix):
                await self.commits.help(record)
        async for page in self._store.list_pages(prefix, after=after):
            listed = [meta for meta in page if parse_staged_key(meta.key) is None] if hides_staged else page
            if listed:
                yield listed

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self._store.copy(source, destination)

    async def aclose(self) -> None:
        """See ``ObjectStore``."""
        if self._finisher is not None:
            await self._finisher.aclose()
        await self.records.aclose()
        await super().aclose()

    async def check_id(self) -> None:
        """Check once that the records belong to the objects; every use of a record comes after it.

        Raises:
            StoreUnsafe: they belong to others.
        """
        if self._must_check_id:
            await require_same_id(self._store, self.records)
            self._must_check_id = False

    async def _create(self, key: str, parts: Parts, attributes: Mapping[str, str] | None) -> None:
        await self.check_id()
        put_id = (attributes or {}).get(PUT_ID) or str(self._env.ids.uuid())
        record = await self.commits.insert(key, parts, put_id, attributes)
        if self._finisher is not None and not record.is_committed:
            await self._finisher.finish_later(record)
            return
        # Another process may have finished it meanwhile.
        if record.is_committed or await self.commits.write_destination(record, parts, attributes):
            try:
                await self.commits.finish(record)
            except ShaleError as error:
                # The object can be read: whatever fails now does not change the outcome, and recovery finishes it.
                log.error(Event.TWO_PHASE_RECOVERY_FAILED, destination=key, source=record.source, error=error)

    async def _or_helped(self, key: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """Read an object; if it is missing but its record is there, finish its put, and read once more."""
        found = await read()
        if found is not None or not is_emulated(key):
            return found
        await self.check_id()
        record = await self.records.get(key)
        if record is None or record.is_deleted:
            return None
        await self.commits.help(record)
        return await read()

    async def _boundary(self, key: str, namespace: str) -> GetResult | None:
        """Return a low-water mark as a boundary file; the object of that name is never read."""
        await self.check_id()
        mark = await self.records.low_water_mark(namespace)
        if mark == 0:
            return None
        data = encode_boundary(mark)
        return GetResult(memoryview(data), ObjectMeta(key, len(data), self._env.clock.now_ms(), etag=_etag(mark)))

    async def _put_boundary(self, key: str, namespace: str, parts: Parts, mode: PutMode) -> ETag:
        """Raise a low-water mark; the object is written too, as information for people."""
        await self.check_id()
        current = await self.records.low_water_mark(namespace)
        if isinstance(mode, Create) and current:
            raise AlreadyExists(f"{key} exists")
        if isinstance(mode, Update) and mode.etag != _etag(current):
            raise Precondition(f"{key} is of another version")
        target = int(b"".join(parts))
        mark = await self.records.raise_low_water_mark(namespace, target)
        await self._store.put(key, encode_boundary(mark))
        # Not the tag of ``mark``, which a concurrent pass may have raised further: the caller knows ``target`` only.
        return _etag(target)


def two_phase_of(store: ObjectStore) -> TwoPhaseStore | None:
    """Return the store of the two-phase mode among a store and those that it wraps."""
    found: object = store
    while isinstance(found, StoreWrapper):
        if isinstance(found, TwoPhaseStore):
            return found
        found = found.wrapped
    return None


def _etag(mark: int) -> ETag:
    return f"mark-{mark}"


def _with_attributes(meta: ObjectMeta, attributes: Mapping[str, str]) -> ObjectMeta:
    return ObjectMeta(meta.key, meta.size, meta.last_modified_ms, meta.etag, attributes)
