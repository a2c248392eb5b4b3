"""One pass of one task: its time, its limits, and how it carries out a plan."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import anyio

from shale.errors import ProtocolPanic, ShaleError, UnavailableError
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale_gc.instruments import GcInstruments
from shale_gc.options import Task, TaskOptions

_DELETE_S = 10.0
"""A deletion that has begun is finished even when the process stops, but nobody waits longer for it than this."""
log = get_logger("gc")


class Doomed(Protocol):
    """What a plan names: a file with its id and its bytes."""

    @property
    def id(self) -> int:
        """The id, a ULID or a number."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...


D = TypeVar("D", bound=Doomed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass.  ``now_ms`` was sampled before its first read."""

    task: Task
    now_ms: int
    options: TaskOptions
    instruments: GcInstruments
    delete_concurrency: int

    async def carry_out(
        self,
        doomed: Sequence[D],
        delete: Callable[[int], Awaitable[None]],
        *,
        boundary: int | None = None,
        advance: Callable[[int], Awaitable[None]] | None = None,
    ) -> int:
        """Delete what a plan names, or only say so in a dry run.

        Args:
            delete: deletes one object by its id; absence is success.
            boundary: has to be durable before the first deletion.
            advance: makes it durable.

        Returns:
            how many objects are gone.
        """
        self.instruments.planned(self.task, len(doomed))
        if not doomed:
            return 0
        if self.options.dry_run:
            size = sum(each.size for each in doomed)
            log.info(Event.GC_PLAN, resource=self.task.value, count=len(doomed), bytes=size, boundary=boundary)
            return 0
        if boundary is not None and advance is not None:
            await advance(boundary)
        return await self._delete_all(doomed, delete, boundary)

    async def _delete_all(
        self, doomed: Sequence[D], delete: Callable[[int], Awaitable[None]], boundary: int | None
    ) -> int:
        gone: list[D] = []
        waiting = iter(doomed)
        self.instruments.pending(len(doomed))
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(self.delete_concurrency, len(doomed))):
                    tasks.start_soon(self._delete_each, waiting, delete, gone, name=f"gc.{self.task}.delete")
        finally:
            self.instruments.pending(-len(doomed))
            if gone:
                size = sum(each.size for each in gone)
                log.info(Event.GC_DELETE, resource=self.task.value, count=len(gone), bytes=size, boundary=boundary)
        return len(gone)

    async def _delete_each(self, waiting: Iterator[D], delete: Callable[[int], Awaitable[None]], gone: list[D]) -> None:
        for each in waiting:
            try:
                await _in_time(delete(each.id))
            except ProtocolPanic:
                raise
            except ShaleError as error:
                self.instruments.error(self.task, error)
                log.error(Event.GC_DELETE_FAILED, resource=self.task.value, object=str(each.id), error=error)
            else:
                gone.append(each)
                self.instruments.deleted(self.task, each.size)


async def _in_time(deletion: Awaitable[None]) -> None:
    with anyio.move_on_after(_DELETE_S, shield=True) as patience:
        await deletion
    if patience.cancelled_caught:
        raise UnavailableError(f"no answer within {_DELETE_S:g} s")
