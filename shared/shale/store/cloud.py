"""S3, Google Cloud Storage and Azure Blob through obstore: the only module that calls it.

obstore's synchronous calls run in threads.  Its asynchronous ones let a process that ends soon after an answer abort
in a quarter of all runs (docs/adr/0002-obstore-bridge.md).  Every request is sent once: obstore's own retries would
report our own committed conditional put as a conflict, so repeating is the business of ``RetryingStore``.  Only the
parts of a multipart upload, which cannot collide, are repeated inside obstore.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import obstore
from obstore.exceptions import BaseError, NotModifiedError
from obstore.store import AzureStore, GCSStore, S3Store

from shale.errors import CorruptionError, InvalidRequestError, NotFoundError
from shale.store import cloud_errors
from shale.store.failures import RequestFailed
from shale.store.handover import Handover
from shale.store.location import parse_store_url
from shale.store.memory import joined
from shale.store.options import StoreOptions
from shale.store.port import (
    OVERWRITE,
    UNCHANGED,
    Buffer,
    Create,
    ETag,
    Got,
    ObjectMeta,
    PutMode,
    Unchanged,
    Update,
)

T = TypeVar("T")

_BACKENDS: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "gs": (), "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")}
_LIST_PAGE = 1000


class CloudStore:
    """One bucket or container.  Credentials come from ``options.config`` or from the provider's usual variables.

    Raises:
        InvalidRequestError: an option that obstore does not know.
    """

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options if options is not None else StoreOptions()
        self._url = parse_store_url(url)
        self._options = options
        try:
            self._once: Any = _backend(self._url, options, {"max_retries": 0})
            self._patient: Any = _backend(self._url, options, _part_retries(options))
        except (BaseError, ValueError) as error:
            raise InvalidRequestError(f"{self._url}: {cloud_errors.first_line(error)}") from error
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

    async def get(self, key: str) -> Got | None:
        """See ``ObjectStore``."""
        return await self._call("get", key, lambda: _whole(obstore.get(self._once, key)))

    async def get_if_changed(self, key: str, etag: ETag) -> Got | Unchanged | None:
        """See ``ObjectStore``."""

        def work() -> Got | Unchanged:
            try:
                return _whole(obstore.get(self._once, key, options={"if_none_match": etag}))
            except NotModifiedError:
                return UNCHANGED

        return await self._call("get", key, work)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        if start >= end:
            return None if await self.head(key) is None else memoryview(b"")
        try:
            data = await self._call(
                "get_range", key, lambda: memoryview(obstore.get_range(self._once, key, start=start, end=end))
            )
        except RequestFailed as error:
            # A range that begins after the end is an error for the store; so may be many other things.
            if "416" not in str(error):
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
            answer = obstore.get(self._once, key, options={"head": True})
            return _meta(answer.meta, _attributes(answer.attributes))

        return await self._call("head", key, work)

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``.  What is sent is a copy if the buffer is mutable: a thread may outlive its caller."""
        body = joined(data)

        def work() -> ETag | None:
            answer = obstore.put(
                self._once, key, body, mode=_mode(mode), attributes=dict(attributes or {}), use_multipart=False
            )
            return answer["e_tag"]

        return await self._write("put", key, work)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> None:
        """See ``ObjectStore``.  Up to four parts are on their way while two wait."""
        size = self._options.part_size_bytes
        handover = Handover(limit=2)

        def upload() -> None:
            obstore.put(self._patient, key, handover, use_multipart=True, chunk_size=size, max_concurrency=4)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, "put_stream", key, upload)
                with handover.given_up_on_error():
                    async for part in _regrouped(parts, size):
                        await anyio.to_thread.run_sync(handover.offer, part, abandon_on_cancel=True)
                    await anyio.to_thread.run_sync(handover.offer, None, abandon_on_cancel=True)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._call("delete", key, lambda: obstore.delete(self._once, key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""

        def work() -> Sequence[ObjectMeta]:
            pages = obstore.list(self._once, prefix.rstrip("/") or None, chunk_size=_LIST_PAGE)
            return sorted((_meta(found) for page in pages for found in page), key=lambda meta: meta.key)

        return [*(await self._call("list", prefix, work) or ())]

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""

        def work() -> bool:
            obstore.copy(self._once, source, destination)
            return True

        if await self._call("copy", source, work) is None:
            raise NotFoundError(f"{self._url}/{source} does not exist")

    async def aclose(self) -> None:
        """See ``ObjectStore``.  Requests whose callers were cancelled are waited for; their time is bounded."""
        with anyio.move_on_after(self._options.request_timeout_s, shield=True):
            while self._running:  # noqa: ASYNC110 - threads, which may outlive this loop, cannot set its events
                await anyio.sleep(0.005)

    async def _call(self, op: str, key: str, work: Callable[[], T]) -> T | None:
        """Run one request in a thread.  ``None``: there is no such object."""
        try:
            return await self._hop(work)
        except FileNotFoundError as error:
            cloud_errors.check_bucket(error, self._url)
            return None
        except (BaseError, PermissionError, NotImplementedError, ValueError) as error:
            raise cloud_errors.translated(error, self._url, op, key) from error

    async def _write(self, op: str, key: str, work: Callable[[], T]) -> T:
        """As ``_call``; a put that finds nothing to put into has no bucket."""
        try:
            return await self._hop(work)
        except (FileNotFoundError, BaseError, PermissionError, NotImplementedError, ValueError) as error:
            raise cloud_errors.translated(error, self._url, op, key) from error

    async def _hop(self, work: Callable[[], T]) -> T:
        """Call in a thread.  A cancelled caller leaves at once; the thread finishes its request, which may succeed."""
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


def _backend(url: str, options: StoreOptions, retry_config: Mapping[str, Any]) -> Any:
    scheme, _, bucket = url.partition("://")
    client: dict[str, Any] = {
        "timeout": f"{options.request_timeout_s:g}s",
        "connect_timeout": f"{options.connect_timeout_s:g}s",
    }
    if _is_plain_http(scheme, options.config):
        client["allow_http"] = True
    return _BACKENDS[scheme](
        bucket, config=dict(options.config), client_options=client | dict(options.client), retry_config=retry_config
    )


def _is_plain_http(scheme: str, config: Mapping[str, str]) -> bool:
    """Who names an ``http://`` endpoint wants it.

    obstore reads the provider's variables itself, but client options of ours hide its AWS_ALLOW_HTTP.
    """
    named = [value for name, value in config.items() if "endpoint" in name.lower()]
    named += [os.environ[name] for name in _ENDPOINTS[scheme] if name in os.environ]
    return any(urlsplit(endpoint).scheme == "http" for endpoint in named)


def _part_retries(options: StoreOptions) -> dict[str, Any]:
    """The policy of docs/protocol.md 0.3, as far as obstore can follow it."""
    policy = options.retry
    return {
        "max_retries": 1_000_000 if policy.retries_max is None else policy.retries_max,
        "retry_timeout": timedelta(days=1),
        "backoff": {
            "init_backoff": timedelta(seconds=policy.first_delay_s),
            "max_backoff": timedelta(seconds=policy.delay_cap_s),
            "base": 2,
        },
    }


def _mode(mode: PutMode) -> Any:
    match mode:
        case Create():
            return "create"
        case Update(etag=etag):
            return {"e_tag": etag}
        case _:
            return "overwrite"


def _meta(found: Any, attributes: Mapping[str, str] | None = None) -> ObjectMeta:
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return ObjectMeta(found["path"], found["size"], modified_ms, found["e_tag"], attributes)


def _attributes(found: Mapping[str, str]) -> dict[str, str]:
    """User metadata; the names of standard headers come along, and begin with a capital letter."""
    return {name: value for name, value in found.items() if not name[:1].isupper()}


def _whole(answer: Any) -> Got:
    data = memoryview(answer.bytes())
    return Got(data, _meta(answer.meta, _attributes(answer.attributes)))


async def _regrouped(parts: AsyncIterable[Buffer], size: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of at least ``size``, but for the last."""
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
