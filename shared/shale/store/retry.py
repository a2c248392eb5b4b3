"""The one retry layer under every primitive (docs/protocol.md 0.3), and who wrote an object (1.5).

A conditional put whose answer got lost meets its own object when it is repeated.  So every conditional put carries a
fresh id in the object's metadata, the same on each attempt, and a conflict is believed only after a HEAD has shown
that the object carries another one.  Bodies prove nothing: two processes often write equal bytes.

Without metadata (a plain directory) an own write can look like a conflict; every mutator of the protocol bears that.
"""

import itertools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio

from shale.env import Env
from shale.errors import AccessDenied, AlreadyExists, Precondition, ShaleError, StoreUnsafe, UnavailableError
from shale.store.failures import NotSupported, failure_type
from shale.store.gather import gather
from shale.store.options import RetryPolicy
from shale.store.pages import next_page
from shale.store.port import (
    OVERWRITE,
    PUT_ID,
    Buffer,
    ETag,
    Got,
    ObjectMeta,
    ObjectStore,
    Overwrite,
    PutMode,
    Unchanged,
)
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

T = TypeVar("T")

log = get_logger("store")

SINGLE_PUT_BYTES = 8 * 1024 * 1024
"""A stream up to this size becomes one put, which can be repeated; a longer one leaves retries to its parts."""

AUTH_LOG_INTERVAL_S = 60.0


class RetryingStore:
    """Insists on an answer from ``store``: by default for ever, with growing pauses."""

    def __init__(self, store: ObjectStore, env: Env, policy: RetryPolicy | None = None) -> None:
        self._store = store
        self._env = env
        self._policy = policy if policy is not None else RetryPolicy()
        self._sends_attributes = store.supports_attributes
        self._auth_logged_s: float | None = None

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._store.url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._sends_attributes

    @property
    def policy(self) -> RetryPolicy:
        """How patient this one is."""
        return self._policy

    def with_policy(self, policy: RetryPolicy) -> "RetryingStore":
        """The same store with other patience: start-up checks give up where a daemon at work insists."""
        return RetryingStore(self._store, self._env, policy)

    async def get(self, key: str) -> Got | None:
        """See ``ObjectStore``."""
        return await self._insist("get", lambda: self._store.get(key))

    async def get_if_changed(self, key: str, etag: ETag) -> Got | Unchanged | None:
        """See ``ObjectStore``."""
        return await self._insist("get", lambda: self._store.get_if_changed(key, etag))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self._insist("get_range", lambda: self._store.get_range(key, start, end))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self._insist("head", lambda: self._store.head(key))

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        if isinstance(mode, Overwrite):
            return await self._insist("put", lambda: self._attempt(key, data, mode, dict(attributes or {})))
        stamped = {**(attributes or {}), PUT_ID: str(self._env.ids.ulid())}
        try:
            return await self._insist("put", lambda: self._attempt(key, data, mode, stamped))
        except (AlreadyExists, Precondition):
            if not self._sends_attributes:
                raise
            found = await self.head(key)
            if found is None or (found.attributes or {}).get(PUT_ID) != stamped[PUT_ID]:
                raise
            return found.etag

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> None:
        """See ``ObjectStore``.  A stream can be read once only, so it is repeated as a whole only if it is small."""
        stream = aiter(parts)
        head: list[Buffer] = []
        size = 0
        async for part in stream:
            head.append(part)
            size += len(part)
            if size > SINGLE_PUT_BYTES:
                await self._store.put_stream(key, _chained(head, stream))
                return
        await self.put(key, head)

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._insist("delete", lambda: self._store.delete(key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``.  Repeated as a whole: half a listing is never seen."""
        return await self._insist("list", lambda: self._store.list(prefix))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  After a failure the listing goes on behind the last page that came."""
        pages = self._store.list_pages(prefix, after=after)

        async def advance() -> Sequence[ObjectMeta]:
            nonlocal pages
            try:
                return await next_page(pages)
            except ShaleError:
                pages = self._store.list_pages(prefix, after=after)
                raise

        while page := await self._insist("list", advance):
            after = page[-1].key
            yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  Objects that are left are tried once more, each by itself, and then reported.

        Without end it would insist on one object that cannot be deleted while all others wait.
        """
        problems = await self._store.delete_many(keys)
        if not problems:
            return problems
        outcomes = await gather([partial(self._delete_once, key) for key in problems])
        return {key: error for key, error in zip(problems, outcomes, strict=True) if error is not None}

    async def _delete_once(self, key: str) -> ShaleError | None:
        try:
            await self._store.delete(key)
        except ShaleError as error:
            return error
        return None

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self._insist("copy", lambda: self._store.copy(source, destination))

    async def aclose(self) -> None:
        """See ``ObjectStore``."""
        await self._store.aclose()

    async def _attempt(
        self, key: str, data: Buffer | Sequence[Buffer], mode: PutMode, attributes: Mapping[str, str]
    ) -> ETag | None:
        """One put, without metadata from the moment the store says that it has none."""
        try:
            return await self._store.put(
                key, data, mode=mode, attributes=attributes if self._sends_attributes else None
            )
        except NotSupported as error:
            if error.what != "attributes" or not self._sends_attributes:
                raise StoreUnsafe(str(error)) from error
            self._sends_attributes = False
            return await self._store.put(key, data, mode=mode)

    async def _insist(self, op: str, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``call`` until it is answered, or the policy has had enough.

        Raises:
            AccessDenied: at once, if the policy fails fast.
            UnavailableError: the last failure, after all retries.
        """
        for retry in itertools.count():
            try:
                result = await call()
            except (UnavailableError, AccessDenied) as error:
                if isinstance(error, AccessDenied):
                    if self._policy.fail_fast_auth:
                        raise
                    self._log_auth(op, error)
                if self._policy.retries_max is not None and retry >= self._policy.retries_max:
                    raise _exhausted(self.url, op, retry, error) from error
                self._log_retry(op, error, retry + 1)
                await anyio.sleep(self._policy.delay_s(retry))
            else:
                if retry > 1:
                    log.info(Event.STORE_REQUEST_RETRIED, op=op, outcome="ok", attempts=retry + 1)
                return result
        raise AssertionError("unreachable")

    def _log_retry(self, op: str, error: ShaleError, attempts: int) -> None:
        """The first failure, then every power of two: an outage is told about, not counted aloud."""
        if attempts & (attempts - 1) == 0:
            log.info(
                Event.STORE_REQUEST_RETRIED,
                op=op,
                error=error,
                error_type=failure_type(error).value,
                delay_ms=round(self._policy.delay_s(attempts - 1) * 1000),
                attempts=attempts,
            )

    def _log_auth(self, op: str, error: AccessDenied) -> None:
        now_s = self._env.clock.monotonic_s()
        if self._auth_logged_s is None or now_s - self._auth_logged_s >= AUTH_LOG_INTERVAL_S:
            self._auth_logged_s = now_s
            log.error(Event.STORE_AUTH_FAILED, op=op, error=error)


def _exhausted(url: str, op: str, retries: int, error: ShaleError) -> UnavailableError:
    return UnavailableError(f"{url}: {op} failed {retries + 1} times, the last time with: {error}")


async def _chained(first: list[Buffer], rest: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
    """Empties ``first``: whoever waits for the end of the stream must not keep its beginning in memory."""
    first.reverse()
    while first:
        yield first.pop()
    async for part in rest:
        yield part
