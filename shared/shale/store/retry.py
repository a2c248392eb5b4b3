"""The retry layer of all requests (docs/reference/protocol.md 0.3), which recognises its own puts (1.5).

A conditional put whose response was lost conflicts with its own object when it is repeated.  Therefore every
conditional put stores a fresh id in the object's metadata, the same on each attempt, and a conflict counts only after a
HEAD has shown another id.  Equal bytes prove nothing: two processes often write the same.

Without metadata, as in a directory, an own write can look like a conflict; the protocol tolerates that.
"""

import itertools
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import (
    AccessDenied,
    AlreadyExists,
    DeadlineExceeded,
    Precondition,
    ShaleError,
    StoreUnsafe,
    UnavailableError,
)
from shale.store.adapter_errors import NotSupported, failure_type
from shale.store.failing_writes import FAILURES, FailingWrites
from shale.store.opening import FIRST_ANSWER_S, current_opening
from shale.store.options import RetryPolicy
from shale.store.port import (
    OVERWRITE,
    PUT_ID,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    ObjectStore,
    OpenLocal,
    Overwrite,
    PutMode,
    open_local_of,
)
from shale.store.wrapper import StoreWrapper, delete_each, next_page
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

T = TypeVar("T")

log = get_logger("store")

SINGLE_PUT_BYTES = 8 * 1024 * 1024
"""A stream up to this size becomes one put, which can be retried; in a longer one, only its parts are."""

AUTH_LOG_INTERVAL_S = 60.0


class RetryingStore(StoreWrapper):
    """Retries requests to ``store`` until they are answered: by default without limit, with growing delays."""

    def __init__(
        self,
        store: ObjectStore,
        env: Env,
        policy: RetryPolicy | None = None,
        *,
        writes: FailingWrites | None = None,
    ) -> None:
        super().__init__(store)
        self._env = env
        self._writes = FailingWrites(env.clock) if writes is None else writes
        self._policy = policy if policy is not None else RetryPolicy()
        self._sends_attributes = store.supports_attributes
        self._auth_logged_s: float | None = None
        self._has_answered = False

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._sends_attributes

    @property
    def open_local(self) -> OpenLocal | None:
        """See ``LocalReads``.  A read that fails is repeated by ``get_range``."""
        return open_local_of(self._store)

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy."""
        return self._policy

    def with_policy(self, policy: RetryPolicy) -> "RetryingStore":
        """Return the same store with another policy: start-up checks give up earlier than a running daemon."""
        return RetryingStore(self._store, self._env, policy)

    def over(self, store: ObjectStore) -> "RetryingStore":
        """Return another store with the same policy: one below a wrapper, for example."""
        return RetryingStore(store, self._env, self._policy, writes=self._writes)

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        return await self.retry("get", lambda: self._store.get(key))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        return await self.retry("get", lambda: self._store.get_if_changed(key, etag))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self.retry("get_range", lambda: self._store.get_range(key, start, end))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self.retry("head", lambda: self._store.head(key))

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        path = self._url_of(key)
        try:
            etag = await self._put(key, data, mode, dict(attributes or {}), path)
        except BaseException as error:
            self._writes.ended(path, error)
            raise
        if self._writes.has_failed:
            self._writes.ended(path, None)
        return etag

    async def _put(
        self, key: str, data: BytesLike | Sequence[BytesLike], mode: PutMode, stamped: dict[str, str], path: str
    ) -> ETag | None:
        if isinstance(mode, Overwrite):
            return await self.retry("put", lambda: self._attempt(key, data, mode, stamped), path)
        if self._sends_attributes:
            stamped[PUT_ID] = str(self._env.ids.ulid())
        try:
            return await self.retry("put", lambda: self._attempt(key, data, mode, stamped), path)
        except (AlreadyExists, DeadlineExceeded, Precondition) as error:
            is_silent = isinstance(error, DeadlineExceeded) and not self._has_answered
            if is_silent or not self._sends_attributes:
                raise
            found = await self.head(key)
            if found is None or (found.attributes or {}).get(PUT_ID) != stamped[PUT_ID]:
                raise
            return found.etag

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``.  A stream can be read only once, so it is retried as a whole only if it is small."""
        stream = aiter(parts)
        head: list[BytesLike] = []
        size = 0
        async for part in stream:
            head.append(part)
            size += len(part)
            if size > SINGLE_PUT_BYTES:
                await self._put_stream(key, _chained(head, stream))
                return
        await self.put(key, head)

    async def _put_stream(self, key: str, parts: AsyncIterator[BytesLike]) -> None:
        path, problem = self._url_of(key), None
        try:
            await self._store.put_stream(key, parts)
        except BaseException as error:
            problem = error
            if isinstance(error, FAILURES):
                self._writes.failed(path, error)
            raise
        finally:
            self._writes.ended(path, problem)

    def _url_of(self, key: str) -> str:
        return f"{self.url}{key}" if self.url.endswith("/") else f"{self.url}/{key}"

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self.retry("delete", lambda: self._store.delete(key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``.  Retried as a whole: callers never see half a listing."""
        return await self.retry("list", lambda: self._store.list(prefix))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  After a failure, the listing continues after the last page."""
        pages = self._store.list_pages(prefix, after=after)

        async def advance() -> Sequence[ObjectMeta]:
            nonlocal pages
            try:
                return await next_page(pages)
            except ShaleError:
                pages = self._store.list_pages(prefix, after=after)
                raise

        while page := await self.retry("list", advance):
            after = page[-1].key
            yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  Objects that were not deleted are retried once, one by one, and then reported:
        unlimited retries of one object that cannot be deleted would block all others.
        """
        problems = await self._store.delete_many(keys)
        return await delete_each(self._store.delete, problems) if problems else problems

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self.retry("copy", lambda: self._store.copy(source, destination))

    async def _attempt(
        self, key: str, data: BytesLike | Sequence[BytesLike], mode: PutMode, attributes: Mapping[str, str]
    ) -> ETag | None:
        """Put once, without metadata if the store has reported that it supports none."""
        try:
            return await self._store.put(
                key, data, mode=mode, attributes=attributes if self._sends_attributes else None
            )
        except NotSupported as error:
            if error.what != "attributes" or not self._sends_attributes:
                raise StoreUnsafe(str(error)) from error
            self._sends_attributes = False
            return await self._store.put(key, data, mode=mode)

    async def retry(self, op: str, call: Callable[[], Awaitable[T]], written: str | None = None) -> T:
        """Repeat ``call`` until it is answered, as often as the policy allows.

        Requests to the transactional store of the two-phase mode have the same policy.

        Args:
            op: names the request in logs and errors.
            call: makes one attempt.
            written: URL of the object that it writes, if it writes one.

        Raises:
            AccessDenied: at once, if the policy fails fast.
            UnavailableError: after all retries, with the last failure.
            DeadlineExceeded: after the policy's ``timeout_s``.
        """
        if self._policy.timeout_s is None:
            return await self._retry(op, call, written)
        limit_s = self._policy.timeout_s if self._has_answered else min(FIRST_ANSWER_S, self._policy.timeout_s)
        failures: deque[ShaleError] = deque(maxlen=1)
        with anyio.move_on_after(limit_s):
            return await self._retry(op, call, written, failures)
        raise _timed_out(self.url, op, limit_s, failures)

    async def _retry(
        self,
        op: str,
        call: Callable[[], Awaitable[T]],
        written: str | None,
        failures: deque[ShaleError] | None = None,
    ) -> T:
        for retry in itertools.count():
            try:
                result = await call()
            except (UnavailableError, AccessDenied) as error:
                opening = current_opening()
                if written is not None:
                    self._writes.failed(written, error)
                if isinstance(error, AccessDenied):
                    if self._policy.fail_fast_auth or opening is not None:
                        raise
                    self._log_auth(op, error)
                if self._policy.retries_max is not None and retry >= self._policy.retries_max:
                    raise _exhausted(self.url, op, retry, error) from error
                if opening is not None:
                    opening.failed(error)
                if failures is not None:
                    failures.append(error)
                self._log_retry(op, error, retry + 1)
                await anyio.sleep(self._policy.delay_s(retry))
            else:
                self._has_answered = True
                if (opening := current_opening()) is not None:
                    opening.answered()
                if retry > 1:
                    log.info(Event.STORE_REQUEST_RETRIED, op=op, outcome="ok", attempts=retry + 1)
                return result
        raise AssertionError("unreachable")

    def _log_retry(self, op: str, error: ShaleError, attempts: int) -> None:
        """Log the first failure, then every power of two, so that an outage does not flood the log."""
        if attempts & (attempts - 1) == 0:
            tell, event = (
                (log.info, Event.STORE_REQUEST_RETRIED) if attempts == 1 else (log.warning, Event.STORE_REQUEST_FAILING)
            )
            tell(
                event,
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


def _timed_out(url: str, op: str, limit_s: float, failures: Sequence[ShaleError]) -> DeadlineExceeded:
    last = f"the last time with: {failures[-1]}" if failures else "no answer came"
    return DeadlineExceeded(
        f"{url}: {op} failed for {limit_s:g} s, {last}; check the URL, the endpoint and the network"
    )


async def _chained(first: list[BytesLike], rest: AsyncIterator[BytesLike]) -> AsyncIterator[BytesLike]:
    """Yield ``first``, then ``rest``; ``first`` is emptied, so that the stream's beginning does not stay in memory."""
    first.reverse()
    while first:
        yield first.pop()
    async for part in rest:
        yield part
