"""S3, Google Cloud Storage and Azure Blob through obstore: the only module that calls it.

obstore's synchronous calls run in threads.  With its asynchronous calls, a process that exits soon after a response
aborts in a quarter of all runs (docs/adr/0002-obstore-bridge.md).  Every request is sent once: obstore's retries would
report an own committed conditional put as a conflict, so ``RetryingStore`` retries instead.  Only the parts of a
multipart upload, which cannot conflict, are retried inside obstore.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import obstore
from obstore.exceptions import BaseError, NotModifiedError

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError, InvalidRequestError, NotFoundError, ShaleError
from shale.store.adapter_errors import RequestFailed
from shale.store.cloud_store import client, translate_errors
from shale.store.cloud_store.values import etag_of, head_of, http_etag, meta_of, mode_of, whole
from shale.store.location import parse_store_url
from shale.store.memory import joined
from shale.store.options import StoreOptions
from shale.store.port import (
    LIST_PAGE,
    NOT_MODIFIED,
    OVERWRITE,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    PutMode,
)
from shale.store.thread_pipe import ThreadPipe

T = TypeVar("T")

_CLOSE_S = 2.0
_sender_pid = 0
"""The process whose requests obstore's threads send: they start with the first request and are in no forked process."""


class CloudStore:
    """One bucket or container.  Credentials come from ``options.config`` or from the provider's usual variables.

    Raises:
        InvalidRequestError: an option that obstore does not know.
    """

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options if options is not None else StoreOptions()
        self._url = parse_store_url(url)
        self._options = options
        self._without_retries = client.sends_once(self._url, options)
        self._with_retries = client.repeats(self._url, options)
        self._by_generation = self._url.startswith("gs:")
        self._limiter: anyio.CapacityLimiter | None = None
        self._running: set[object] = set()

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return True

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        return await self._call("get", key, lambda: self._whole(obstore.get(self._without_retries, key)))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""

        def work() -> GetResult | NotModified:
            try:
                return self._whole(obstore.get(self._without_retries, key, options={"if_none_match": http_etag(etag)}))
            except NotModifiedError:
                return NOT_MODIFIED

        return await self._call("get", key, work)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        if start >= end:
            return None if await self.head(key) is None else memoryview(b"")
        try:
            data = await self._call(
                "get_range",
                key,
                lambda: memoryview(obstore.get_range(self._without_retries, key, start=start, end=end)),
            )
        except RequestFailed as error:
            # A range that begins after the end is an error: S3 reports it by status, Azure only by obstore's text.
            if "416 " not in str(error) and "Wanted range" not in str(error):
                raise
            data = memoryview(b"")
        if data is None or len(data) == end - start:
            return data
        meta = await self.head(key)
        if meta is None:
            return None
        if meta.size < end:
            raise CorruptionError(
                f"the object ends at byte {meta.size}, bytes {start} to {end} were wanted", path=key, offset=meta.size
            )
        raise RequestFailed(f"{self._url}: get_range {key}: {len(data)} bytes came instead of {end - start}")

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""

        def work() -> ObjectMeta:
            answer = obstore.get(self._without_retries, key, options={"head": True})
            return head_of(answer, by_generation=self._by_generation)

        return await self._call("head", key, work)

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``.  A mutable buffer is copied, because the thread may outlive its caller."""
        body = joined(data)
        how = mode_of(mode, by_generation=self._by_generation)
        names = dict(attributes or {})

        def work() -> ETag | None:
            answer = obstore.put(self._without_retries, key, body, mode=how, attributes=names, use_multipart=False)
            return etag_of(answer, by_generation=self._by_generation)

        return await self._write("put", key, work)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``.  Up to three parts are uploaded at a time while one waits."""
        size = self._options.part_size_bytes
        pipe = ThreadPipe(limit=1)

        def upload() -> None:
            obstore.put(self._with_retries, key, pipe, use_multipart=True, chunk_size=size, max_concurrency=3)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, "put_stream", key, upload)
                with pipe.given_up_on_error():
                    async for part in _regrouped(parts, size):
                        await anyio.to_thread.run_sync(pipe.offer, part, abandon_on_cancel=True)
                    await anyio.to_thread.run_sync(pipe.offer, None, abandon_on_cancel=True)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._call("delete", key, lambda: obstore.delete(self._without_retries, key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""

        def work() -> Sequence[ObjectMeta]:
            pages = obstore.list(self._without_retries, prefix.rstrip("/") or None, chunk_size=LIST_PAGE)
            metas = (meta_of(found, by_generation=self._by_generation) for page in pages for found in page)
            return sorted(metas, key=lambda meta: meta.key)

        return [*(await self._call("list", prefix, work) or ())]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``."""
        pages = obstore.list(
            self._without_retries, prefix.rstrip("/") or None, offset=after or None, chunk_size=LIST_PAGE
        )
        while found := await self._call("list", prefix, lambda: next(pages, None)):
            # Azure may begin with the object at ``after``, Azurite with any before it.
            if page := [meta_of(each, by_generation=self._by_generation) for each in found if each["path"] > after]:
                yield page
            if len(found) < LIST_PAGE:
                return

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  S3 and Azure have one request for it; for others, obstore sends several at a time.
        obstore does not say which objects failed, so an error is reported for all.
        """
        if not keys:
            return {}
        try:
            await self._write("delete", keys[0], lambda: obstore.delete(self._without_retries, list(keys)))
        except ShaleError as error:
            return dict.fromkeys(keys, error)
        return {}

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""

        def work() -> bool:
            obstore.copy(self._without_retries, source, destination)
            return True

        if await self._call("copy", source, work) is None:
            raise NotFoundError(f"{self._url}/{source} does not exist")

    async def aclose(self) -> None:
        """See ``ObjectStore``.

        Waits briefly for requests whose callers were cancelled.  Their threads keep the interpreter alive until they
        end, so a longer wait is not needed; a process that must exit at once calls ``os._exit``.
        """
        with anyio.move_on_after(_CLOSE_S, shield=True):
            while self._running:  # noqa: ASYNC110 - threads, which may outlive this loop, cannot set its events
                await anyio.sleep(0.005)

    def _whole(self, answer: Any) -> GetResult:
        return whole(answer, by_generation=self._by_generation)

    async def _call(self, op: str, key: str, work: Callable[[], T]) -> T | None:
        """Run one request in a thread; return ``None`` if the object does not exist."""
        self._require_sender()
        try:
            return await self._hop(work)
        except FileNotFoundError as error:
            translate_errors.check_bucket(error, self._url)
            return None
        except (BaseError, PermissionError, NotImplementedError, ValueError) as error:
            raise translate_errors.translated(error, self._url, op, key) from None  # its text may hold secrets

    async def _write(self, op: str, key: str, work: Callable[[], T]) -> T:
        """Run a write in a thread; a missing object means a missing bucket."""
        self._require_sender()
        try:
            return await self._hop(work)
        except (FileNotFoundError, BaseError, PermissionError, NotImplementedError, ValueError) as error:
            raise translate_errors.translated(error, self._url, op, key) from None  # its text may hold secrets

    def _require_sender(self) -> None:
        """Check that obstore can send requests: in a forked process they would wait for ever."""
        global _sender_pid  # noqa: PLW0603 - obstore has one set of threads for the process
        pid = os.getpid()
        if _sender_pid not in (0, pid):
            raise InvalidRequestError(
                f"{self._url}: this process was forked from one that had sent requests to a cloud store; its threads "
                'are not here: open databases after the fork only, or start processes with "spawn" or "forkserver"'
            )
        _sender_pid = pid

    async def _hop(self, work: Callable[[], T]) -> T:
        """Call in a thread.  A cancelled caller returns at once; the request goes on and may succeed."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._options.concurrency)

        def counted() -> T:
            token = object()
            self._running.add(token)
            try:
                return work()
            finally:
                self._running.discard(token)

        return await anyio.to_thread.run_sync(counted, limiter=self._limiter, abandon_on_cancel=True)


async def _regrouped(parts: AsyncIterable[BytesLike], size: int) -> AsyncIterator[bytes]:
    """Yield the same bytes in parts of at least ``size``; the last may be smaller."""
    pending: list[bytes] = []
    pending_size = 0
    async for part in parts:
        pending.append(bytes(part))
        pending_size += len(part)
        if pending_size >= size:
            yield b"".join(pending)
            pending, pending_size = [], 0
    if pending:
        yield b"".join(pending)
