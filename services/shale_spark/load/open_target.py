"""The database that takes a load, held open beside Spark's blocking calls: by a thread with an event loop."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from shale.engine.load_target import LoadTarget, NewDatabase, TakenDatabase
from shale.engine.where import Where
from shale.env import Env
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Sst
from shale_spark.beside import held_beside
from shale_spark.load.request import Mode

if TYPE_CHECKING:
    from shale.errors import ShaleError

_AGAIN_S = 2.0


class HeldTarget:
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
        """Call ``on_lost`` again and again once a commit has become impossible.

        Raises:
            FencedError, InvalidDbState: that is what happened; whatever the block raised is its consequence.
        """
        lost: list[ShaleError] = []

        async def watch() -> None:
            lost.append(await self._target.until_lost())
            while True:  # what Spark has not yet begun it cannot end
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
def held_target(where: Where, *, mode: Mode, fence: bool) -> Iterator[HeldTarget]:
    """Open the database of a load, and let go of it at the end, whatever ends the block.

    Raises:
        InvalidDbState: it is there and should not be, or the other way round, or somebody may be writing it.
    """
    with held_beside(_opened(where, mode, fence)) as (portal, target):
        yield HeldTarget(portal, target)


@asynccontextmanager
async def _opened(where: Where, mode: Mode, fence: bool) -> AsyncIterator[LoadTarget]:
    env, metrics = Env.system(), Metrics()
    stores = where.connect(env, metrics, component="pipeline")
    try:
        target: LoadTarget
        if mode is Mode.CREATE:
            target = await NewDatabase.open(stores.main, where.root, env, metrics)
        else:
            target = await TakenDatabase.open(
                stores.main,
                where.root,
                env,
                metrics,
                wal_store=stores.wal,
                fence=fence,
                transformer=where.block_transformer,
            )
        try:
            yield target
        finally:
            await target.close()
    finally:
        await stores.aclose()
