"""The planning side of a stream, for the thread of Spark's driver that has no event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import FeedOffset
from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.feed.retention import Retention
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.telemetry.metrics import Metrics
from shale_spark.changes.options import ChangesOptions
from shale_spark.source.snapshot import open_manifest
from shale_spark.tasks import prepare_process

T = TypeVar("T")
_KEEPING_PER_LIFETIME = 8


@dataclass(frozen=True, slots=True)
class _Parts:
    feed: WalFeed
    retention: Retention | None


class StreamPlanner:
    """Plans the batches of a stream; connected to the database until ``close``.  Every method blocks."""

    def __init__(self, options: ChangesOptions) -> None:
        prepare_process()
        self._options = options
        self._env = Env.system()
        self._kept: FeedOffset | None = None
        self._kept_ms = 0
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal("asyncio"))
            self._parts = stack.enter_context(self._portal.wrap_async_context_manager(_connected(options, self._env)))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Release everything.  The retaining checkpoint stays until its lease is over."""
        self._stack.close()

    def begin(self) -> FeedOffset:
        """Return where a query without a checkpoint begins; with ``retain``, unread changes are kept from here on."""

        async def begin(parts: _Parts) -> FeedOffset:
            kept_after = 0 if parts.retention is None else await parts.retention.hold()
            return await parts.feed.begin(self._options.start, kept_after=kept_after)

        return self._call(begin)

    def end(self, start: FeedOffset, max_files: int | None) -> FeedOffset:
        """Return where the batch after ``start`` ends."""
        return self._call(lambda parts: parts.feed.end(start, max_files=max_files))

    def frontier_id(self) -> int:
        """Return the id of the last WAL file."""
        return self._call(lambda parts: parts.feed.frontier_id())

    def plan(self, start: FeedOffset, end: FeedOffset) -> tuple[FeedPart, ...]:
        """Return the parts of a batch."""
        return self._call(lambda parts: parts.feed.plan(start, end, part_bytes=self._options.partition_bytes))

    def keep(self, read: FeedOffset) -> None:
        """Record that everything up to here was processed: later changes are kept, earlier ones may be collected."""
        now_ms = self._env.clock.now_ms()
        lately = now_ms - self._kept_ms < self._options.retain_for_ms // _KEEPING_PER_LIFETIME
        if self._parts.retention is None or (read == self._kept and lately):
            return
        retention = self._parts.retention
        self._call(lambda _: retention.move(read))
        self._kept, self._kept_ms = read, now_ms

    def _call(self, work: Callable[[_Parts], Awaitable[T]]) -> T:
        return self._portal.call(work, self._parts)


@asynccontextmanager
async def _connected(options: ChangesOptions, env: Env) -> AsyncIterator[_Parts]:
    where = options.where
    stores = where.connect(env, Metrics(), component="pipeline", is_bounded=True)
    try:
        await open_manifest(stores, where, env)
        wal = WalStore(stores.wal or stores.main, where.root, transformer=where.block_transformer)
        manifests = ManifestStore(stores.main, where.root, env)
        feed = WalFeed(wal, manifests, env, on_gap=options.on_gap)
        retention = None
        if options.retain is not None:
            retention = Retention(manifests, env, name=options.retain, lifetime_ms=options.retain_for_ms)
        yield _Parts(feed, retention)
    finally:
        await stores.aclose()
