"""Runs a compactor and a collector beside a writer, in its event loop (docs/how-to/embedded-services.md).

The library imports no service: they are found by name, and loaded with the first work.  Their failures never stop the
writer.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from shale import plugins
from shale.concurrency.first_error import first_error
from shale.concurrency.task_host import TaskHost
from shale.engine.embedded.context import EmbeddedContext
from shale.errors import ClosedError, ProtocolPanic
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

GROUP: Final = "shale.embedded"
COMPACTOR: Final = "shale_compactor.on_demand:run_while_due"
COLLECTOR: Final = "shale_gc.on_demand:collect_while_due"
_FINISH_LIMIT_S = 0.5
"""How long a close waits for work under way: a small compaction makes room for its own flush."""
_RETRY_MIN_S, _RETRY_MAX_S = 1.0, 60.0
log = get_logger("embedded")


class EmbeddedServices:
    """Use ``start``, then ``stop``.

    Args:
        context: the writer's database.
        wait_failed: returns once the writer has failed or is closed.
    """

    def __init__(self, context: EmbeddedContext, wait_failed: Callable[[], Awaitable[object]]) -> None:
        self._context = context
        self._wait_failed = wait_failed
        self._host = TaskHost(f"shale embedded services of {context.root}")

    async def start(self, *, compactor: bool, gc: bool) -> None:
        """Start the services; each loads its code when it has work."""
        group = await self._host.start(_log_failure)

        async def end_with_writer() -> None:
            await self._wait_failed()
            group.cancel_scope.cancel()

        group.start_soon(end_with_writer, name="embedded.watch")
        if compactor:
            group.start_soon(self._compact, name="embedded.compactor")
        if gc:
            group.start_soon(self._collect, name="embedded.gc")

    async def stop(self) -> None:
        """Let work end that takes a moment, then stop; the claim of a job is released for the next process."""
        with anyio.move_on_after(_FINISH_LIMIT_S):
            await self._context.work.finished()
        await self._host.stop()

    async def _compact(self) -> None:
        delay_s = _RETRY_MIN_S
        while True:
            await self._context.work.wait()
            is_done = await self._try(COMPACTOR)
            delay_s = _RETRY_MIN_S if is_done else min(2 * delay_s, _RETRY_MAX_S)
            await anyio.sleep(0 if is_done else delay_s)

    async def _collect(self) -> None:
        while True:
            await self._context.work.wait_compacted()
            if not await self._try(COLLECTOR):
                await anyio.sleep(_RETRY_MAX_S)

    async def _try(self, target: str) -> bool:
        """Load and run a service; log its failure.

        Raises:
            ProtocolPanic: the state of the database is impossible, and no service may write any more.
        """
        try:
            serve = await self._load(target)
            await serve(self._context)
        except ProtocolPanic:
            raise
        except Exception as error:  # noqa: BLE001 - a defect of one service must stop neither the other nor the writer
            _log_failure(error)
            return False
        return True

    async def _load(self, target: str) -> Callable[[EmbeddedContext], Awaitable[None]]:
        # In a thread: the imports take a tenth of a second, in which no put would be answered.
        found: list[Callable[..., Any]] = []
        await self._context.env.cpu.load(lambda: found.append(plugins.resolve(GROUP, target)))
        return found[0]


def _log_failure(error: BaseException) -> None:
    cause = first_error(error)
    if not isinstance(cause, ClosedError):
        log.error(Event.EMBEDDED_FAILED, resource="compactor or gc", error=cause)
