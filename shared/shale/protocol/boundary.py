"""The boundary of a namespace: ids at or below it may have been deleted, so no process may commit them again.

Create-if-absent forgets an id once the collector deletes it.  A writer that slept in between would create the id again
and take it for a commit; it detects the mistake by reading the boundary *after* the create.

Source: docs/reference/protocol.md 2.
"""

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import (
    AlreadyExists,
    InvalidObjectState,
    ObjectVersionBehindBoundary,
    Precondition,
    ProtocolPanic,
    ShaleError,
    UnavailableError,
)
from shale.format.boundary import decode_boundary, encode_boundary
from shale.protocol.backoff import conflict_delay_s
from shale.protocol.instruments import BoundaryInstruments
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.versioned import Namespace, T
from shale.store.port import CREATE, ETag, GetResult, NotModified, ObjectStore, PutMode, Update
from shale.telemetry import tracing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

log = get_logger("boundary")


@dataclass(frozen=True, slots=True)
class _BoundaryState:
    """The boundary in one response; ``exists`` is false for a file that was never written."""

    value: int
    etag: ETag | None
    exists: bool = True


_ABSENT = _BoundaryState(0, None, exists=False)


class Boundary:
    """The boundary object of one namespace, and the value that this process saw last.

    Responses may arrive out of order.  Every start and end of a request therefore gets a number, which orders them
    more finely than a clock: a response contradicts an earlier observation ("the file is missing", "the value is
    lower") only if its request began after that observation.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: Namespace[T],
        env: Env,
        metrics: Metrics,
        options: ProtocolOptions,
    ) -> None:
        self._store = store
        self._key = namespace.boundary_key
        self._resource = namespace.resource
        self._env = env
        self._missing = options.missing_boundary
        self._instruments = BoundaryInstruments(metrics, namespace.resource)
        self._cached: _BoundaryState | None = None
        self._tick = 0
        self._seen_at: int | None = None
        self._adopted_at = 0

    @property
    def observed(self) -> int | None:
        """The highest value that was read or written so far; ``None`` before the first."""
        return None if self._cached is None else self._cached.value

    async def read(self) -> int:
        """Return the durable value; 0 if the file was never written.

        Raises:
            InvalidObjectState: the file holds no number, or a lower one than before.
            ProtocolPanic: the file was seen before and is missing.
        """
        mark, _ = await self._read()
        return mark.value

    async def check(self, file_id: int) -> None:
        """Return only if ``file_id`` is above the boundary, as of a time after this call began.

        Raises:
            ObjectVersionBehindBoundary: it is not.
        """
        started = self._env.clock.monotonic_s()
        cached = self._cached
        try:
            if cached is not None and file_id <= cached.value:
                value, from_cache = cached.value, True  # boundaries only grow, so a read cannot change this
            else:
                with tracing.step("boundary.check"):
                    mark, from_cache = await self._read()
                value = mark.value
        except ShaleError:
            self._instruments.checked("error", cached=False)
            raise
        self._instruments.check_seconds(self._env.clock.monotonic_s() - started)
        self._instruments.checked("stale" if file_id <= value else "ok", cached=from_cache)
        if file_id <= value:
            raise ObjectVersionBehindBoundary(file_id, value, self._resource)

    async def advance(self, target: int) -> None:
        """Return once the durable boundary is at least ``target``.

        Raises:
            UnavailableError: the store gives no etags, so the file cannot be changed safely.
        """
        try:
            await self._advance(target)
        except ShaleError as error:
            self._instruments.advanced("error")
            log.warning(Event.BOUNDARY_ADVANCE_FAILED, resource=self._resource, target=target, error=error)
            raise

    async def _advance(self, target: int) -> None:
        mark = self._cached
        if mark is None:
            mark, _ = await self._read()
        if mark.value >= target:
            self._instruments.advanced("noop")
        conflicts = 0
        while mark.value < target:
            try:
                etag = await self._store.put(self._key, encode_boundary(target), mode=self._mode(mark))
            except (AlreadyExists, Precondition):
                self._instruments.advanced("conflict")
                conflicts += 1
                await anyio.sleep(conflict_delay_s(conflicts, self._env.rng))
                mark, _ = await self._read()
            else:
                self._instruments.advanced("ok")
                mark = self._adopt(_BoundaryState(target, etag), started=self._next_tick())

    def _mode(self, mark: _BoundaryState) -> PutMode:
        if not mark.exists:
            return CREATE
        if mark.etag is None:
            raise UnavailableError(f"{self._key}: the store gives no etag, so the boundary cannot be advanced safely")
        return Update(mark.etag)

    async def _read(self) -> tuple[_BoundaryState, bool]:
        """Read the boundary, and return whether the store confirmed the cached value."""
        started, cached = self._next_tick(), self._cached
        got = await self._get(None if cached is None else cached.etag)
        if got is None:
            return self._absent(started), False
        if isinstance(got, NotModified):
            if self._cached is None:
                raise InvalidObjectState("not modified, but never read", path=self._key)
            self._seen_at = self._next_tick()
            return self._cached, True
        value = decode_boundary(got.data, path=self._key)
        return self._adopt(_BoundaryState(value, got.meta.etag), started=started), False

    async def _get(self, etag: ETag | None) -> GetResult | NotModified | None:
        return await (self._store.get(self._key) if etag is None else self._store.get_if_changed(self._key, etag))

    def _absent(self, started: int) -> _BoundaryState:
        if self._seen_at is not None and started > self._seen_at:
            if self._missing is MissingBoundary.PANIC:
                raise ProtocolPanic("boundary file disappeared", object=self._key, cached=self._cached)
            self._cached = None
        return _ABSENT

    def _adopt(self, mark: _BoundaryState, *, started: int) -> _BoundaryState:
        """Adopt a response unless it is older than the cached one, and return the current value."""
        self._seen_at = self._next_tick()
        cached = self._cached
        if cached is not None and mark.value < cached.value:
            if started > self._adopted_at:
                raise InvalidObjectState(f"boundary went back from {cached.value} to {mark.value}", path=self._key)
            return cached  # an older response that arrived late
        self._cached = mark
        self._adopted_at = self._seen_at
        self._instruments.value(mark.value)
        return mark

    def _next_tick(self) -> int:
        self._tick += 1
        return self._tick
