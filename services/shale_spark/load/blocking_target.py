"""The database that takes a load, held open beside Spark's blocking calls by a thread with an event loop."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from shale.engine.load.target import ExistingDatabase, LoadTarget, NewDatabase
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Sst
from shale_spark.load.request import LoadMode
from shale_spark.tasks import open_in_portal

if TYPE_CHECKING:
    from shale.errors import ShaleError

_AGAIN_S = 2.0


class BlockingLoadTarget:
    """A ``LoadTarget`` for callers that block."""

    def __init__(self, portal: BlockingPortal, target: LoadTarget) -> None:
        self._portal = portal
        self._target = target
        self.stamp = target.stamp

    def commit(self, ssts: Sequence[Sst]) -> Manifest:
        """See ``LoadTarget``."""
        return self._portal.call(self._target.commit, ssts)

    @contextmanager
    def watched(self, on_lost: Callable[[], object]) -> Iterator[None]:
        """Call ``on_lost`` repeatedly once a commit has become impossible.

        Raises:
            FencedError, InvalidDbState: the reason, in place of the block's error, which is its consequence.
        """
        lost: list[ShaleError] = []

        async def watch() -> None:
            lost.append(await self._target.wait_until_lost())
            while True:  # Spark ignores an interrupt that comes before its job
                await anyio.to_thread.run_sync(on_lost)
                await anyio.sleep(_AGAIN_S)

        watching = self._portal.start_task_soon(watch)
        try:
            yield
        finally:
            watching.cancel()
            if lost:
                raise lost[0]


@contextmanager
def open_load_target(where: DatabaseLocation, *, mode: LoadMode, fence: bool) -> Iterator[BlockingLoadTarget]:
    """Open the database of a load, and release it at the end of the block.

    Raises:
        InvalidDbState: it exists and must not, or does not and must, or may have a writer.
    """
    with open_in_portal(_opened(where, mode, fence)) as (portal, target):
        yield BlockingLoadTarget(portal, target)


@asynccontextmanager
async def _opened(where: DatabaseLocation, mode: LoadMode, fence: bool) -> AsyncIterator[LoadTarget]:
    env, metrics = Env.system(), Metrics()
    stores = where.connect(env, metrics, component="pipeline")
    try:
        target: LoadTarget
        if mode is LoadMode.CREATE:
            target = await NewDatabase.open(
                stores.main, where.root, env, metrics, manifest_write_version=where.manifest_write_version
            )
        else:
            target = await ExistingDatabase.open(
                stores.main,
                where.root,
                env,
                metrics,
                wal_store=stores.wal,
                fence=fence,
                transformer=where.block_transformer,
                manifest_write_version=where.manifest_write_version,
            )
        try:
            yield target
        finally:
            await target.close()
    finally:
        await stores.aclose()
