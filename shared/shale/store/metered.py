"""Counts requests, errors and durations per attempt, so it belongs below the retry layer (docs/how-to/monitor.md).

A conflict and a missing object are responses, not errors of the store.  SlateDB counts conflicts as errors, and so does
Shale (``error_type="precondition"``), so that one dashboard serves both.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from shale.core.bytes_like import BytesLike
from shale.env import Clock
from shale.errors import ShaleError
from shale.store.adapter_errors import failure_type
from shale.store.port import (
    OVERWRITE,
    ETag,
    GetResult,
    LocalObject,
    NotModified,
    ObjectMeta,
    ObjectStore,
    OpenLocal,
    PutMode,
    open_local_of,
)
from shale.store.wrapper import StoreWrapper, next_page
from shale.telemetry import tracing
from shale.telemetry.error_types import ErrorType
from shale.telemetry.metrics import Metrics

T = TypeVar("T")

OP_OF_API = {
    "get": "get",
    "get_range": "get",
    "head": "get",
    "list": "get",
    "put": "put",
    "put_stream": "put",
    "delete": "delete",
    "copy": "put",
}
"""The label ``op`` of each label ``api``."""

_API_LABEL = {"put_stream": "multipart_complete", "copy": "put"}


class _Family:
    """The metrics of one kind of request, bound once."""

    __slots__ = ("_clock", "_durations", "_errors", "_requests", "_span_name")

    def __init__(self, metrics: Metrics, clock: Clock, labels: dict[str, str]) -> None:
        self._clock = clock
        self._span_name = f"object_store.{labels['api']}"
        self._requests = metrics.counter("slatedb_object_store_requests_total", **labels)
        self._durations = metrics.histogram("slatedb_object_store_request_duration_seconds", **labels)
        self._errors = {
            kind: metrics.counter("slatedb_object_store_errors_total", **labels, error_type=kind.value)
            for kind in ErrorType
        }

    async def measure_next(self, pages: AsyncIterator[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta]:
        """Count a further page; reaching the end takes no request."""
        start = self._clock.monotonic_s()
        try:
            page = await next_page(pages)
        except ShaleError as error:
            self._requests.inc()
            self.failed(error)
            raise
        if page:
            self._requests.inc()
            self._durations.observe(self._clock.monotonic_s() - start)
        return page

    def add(self, requests: int) -> None:
        """Count requests without a duration."""
        self._requests.inc(requests)

    def failed(self, error: ShaleError) -> None:
        """Count an error that is part of a response."""
        self._errors[failure_type(error)].inc()

    async def measure(self, call: Callable[[], Awaitable[T]], path: str) -> T:
        """Count one attempt on an object.  A cancelled one counts as a request without a duration."""
        self._requests.inc()
        start = self._clock.monotonic_s()
        try:
            with tracing.step(self._span_name, **{"slatedb.object": path}):
                result = await call()
        except ShaleError as error:
            self._errors[failure_type(error)].inc()
            self._durations.observe(self._clock.monotonic_s() - start)
            raise
        self._durations.observe(self._clock.monotonic_s() - start)
        return result


class _LocalReads:
    """What open objects were read since the last scrape."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0


class _MeteredObject:
    """An open object whose reads count."""

    __slots__ = ("_object", "_reads")

    def __init__(self, opened: LocalObject, reads: _LocalReads) -> None:
        self._object = opened
        self._reads = reads

    def read_into(self, buffer: memoryview, start: int) -> int:
        """See ``LocalObject``.  A read that would wait does not count: the request that follows it does."""
        count = self._object.read_into(buffer, start)
        if count == len(buffer):
            self._reads.count += 1
            self._reads.bytes += count
        return count


def _size(data: BytesLike | Sequence[BytesLike]) -> int:
    """Return the bytes of a body."""
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    return sum(memoryview(part).nbytes for part in data)


class MeteredStore(StoreWrapper):
    """``store``, with every request counted under ``component`` and ``store_type``."""

    def __init__(self, store: ObjectStore, clock: Clock, metrics: Metrics, *, component: str, store_type: str) -> None:
        super().__init__(store)
        self._families = {
            api: _Family(
                metrics,
                clock,
                {"component": component, "store_type": store_type, "op": op, "api": _API_LABEL.get(api, api)},
            )
            for api, op in OP_OF_API.items()
        }
        traffic = "slatedb_object_store_bytes_total"
        self._read = metrics.counter(traffic, component=component, store_type=store_type, direction="read").inc
        self._written = metrics.counter(traffic, component=component, store_type=store_type, direction="written").inc
        self._local_reads = _LocalReads()
        metrics.before_scrape(self._count_local_reads)

    @property
    def open_local(self) -> OpenLocal | None:
        """See ``LocalReads``.  Reads count as requests without a duration: to observe one costs as much as to read."""
        inner, reads = open_local_of(self._store), self._local_reads
        if inner is None:
            return None

        def open_counted(key: str) -> LocalObject | None:
            opened = inner(key)
            return None if opened is None else _MeteredObject(opened, reads)

        return open_counted

    def _count_local_reads(self) -> None:
        reads = self._local_reads
        self._families["get_range"].add(reads.count)
        self._read(reads.bytes)
        reads.count = reads.bytes = 0

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        found = await self._families["get"].measure(lambda: self._store.get(key), key)
        if found is not None:
            self._read(found.data.nbytes)
        return found

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        found = await self._families["get"].measure(lambda: self._store.get_if_changed(key, etag), key)
        if isinstance(found, GetResult):
            self._read(found.data.nbytes)
        return found

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        found = await self._families["get_range"].measure(lambda: self._store.get_range(key, start, end), key)
        if found is not None:
            self._read(found.nbytes)
        return found

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self._families["head"].measure(lambda: self._store.head(key), key)

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        put = self._store.put
        etag = await self._families["put"].measure(lambda: put(key, data, mode=mode, attributes=attributes), key)
        self._written(_size(data))
        return etag

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``.  Counted once, when it completes."""
        await self._families["put_stream"].measure(lambda: self._store.put_stream(key, self._counted(parts)), key)

    async def _counted(self, parts: AsyncIterable[BytesLike]) -> AsyncIterator[BytesLike]:
        async for part in parts:
            yield part
            self._written(_size(part))

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._families["delete"].measure(lambda: self._store.delete(key), key)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return await self._families["list"].measure(lambda: self._store.list(prefix), prefix)

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  Every page counts, and an empty listing."""
        pages = self._store.list_pages(prefix, after=after)
        page = await self._families["list"].measure(lambda: next_page(pages), prefix)
        while page:
            yield page
            page = await self._families["list"].measure_next(pages)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  One request, and an error for every object that is not deleted."""
        problems = await self._families["delete"].measure(
            lambda: self._store.delete_many(keys), keys[0] if keys else ""
        )
        for problem in problems.values():
            self._families["delete"].failed(problem)
        return problems

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self._families["copy"].measure(lambda: self._store.copy(source, destination), destination)
