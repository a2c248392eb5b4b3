"""One pass of one task: its time, its limits, and how it carries out a plan, some thousand objects at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from shale.env import Clock
from shale.errors import ProtocolPanic, ShaleError
from shale.garbage.doomed import Doomed, PlannedObject
from shale.garbage.instruments import GcInstruments
from shale.garbage.options import GcFilter, Task, TaskOptions
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

DELETE_BATCH = 250
"""Objects in one request to delete many; a store that takes no such request gets as many small ones."""

_STOP_S = 10.0
"""A process that stops waits so long for a deletion that has begun."""

PROGRESS_S = 10.0
"""Whoever deletes much tells how far it is this often."""
log = get_logger("gc")

DeleteMany: TypeAlias = Callable[[Sequence[Doomed]], Awaitable[Mapping[str, ShaleError]]]
"""Deletes objects, absent ones included, and returns what went wrong by key."""


@dataclass(slots=True)
class Progress:
    """How far a pass is: objects that it saw, that are to go, that are gone, that could not be deleted."""

    listed: int = 0
    planned: int = 0
    planned_bytes: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    failed: int = 0
    told_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass.  ``now_ms`` was sampled before its first read.

    Args:
        only: keys that may go; ``None``: whatever the plan names.
        filter: the user's say; it can keep objects and add none.
        witness: is told every object of the plan.
        on_progress: is called after every chunk.
    """

    task: Task
    now_ms: int
    options: TaskOptions
    instruments: GcInstruments
    delete_concurrency: int
    clock: Clock
    only: frozenset[str] | None = None
    filter: GcFilter | None = None
    witness: Callable[[PlannedObject], None] | None = None
    on_progress: Callable[[Task, Progress], None] | None = None
    progress: Progress = field(default_factory=Progress)

    async def carry_out(
        self,
        chunks: AsyncIterator[Sequence[Doomed]],
        delete_many: DeleteMany,
        *,
        why: str,
        boundary: int | None = None,
        advance: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Delete what a plan names while it is being made, or only say so in a dry run.

        Args:
            why: why these objects may go, for people.
            boundary: has to be durable before the first deletion.
            advance: makes it durable.
        """
        self.progress.told_s = self.clock.monotonic_s()
        if boundary is not None and advance is not None and not self.options.dry_run:
            await advance(boundary)
        try:
            await self._carry_out(chunks, delete_many, why, boundary)
        finally:
            self._tell_end(boundary)

    def plan(self, doomed: Iterable[Doomed], why: str, boundary: int | None = None) -> None:
        """Note what is to go."""
        is_told = self.witness is not None or log.tells_decisions
        for each in doomed:
            self.progress.planned += 1
            self.progress.planned_bytes += each.size
            if is_told:
                age_ms = self.now_ms - each.made_ms
                self._tell_object(PlannedObject(self.task, each.key, each.size, age_ms, why, boundary))
        self.instruments.planned(self.task, self.progress.planned)

    def _tell_object(self, planned: PlannedObject) -> None:
        event = Event.GC_PLAN if self.options.dry_run else Event.GC_DELETE
        log.debug(event, resource=self.task.value, object=planned.key, bytes=planned.size, reason=planned.reason)
        if self.witness is not None:
            self.witness(planned)

    async def _carry_out(
        self, chunks: AsyncIterator[Sequence[Doomed]], delete_many: DeleteMany, why: str, boundary: int | None
    ) -> None:
        wave: list[Doomed] = []
        async for chunk in chunks:
            allowed = await self._allowed(chunk)
            self.plan(allowed, why, boundary)
            if not self.options.dry_run:
                wave += allowed
            if len(wave) >= self.delete_concurrency * DELETE_BATCH:
                await self._delete_all(wave, delete_many)
                wave = []
            self._tell_progress()
        await self._delete_all(wave, delete_many)

    async def _allowed(self, chunk: Sequence[Doomed]) -> Sequence[Doomed]:
        if self.only is not None:
            chunk = [each for each in chunk if each.key in self.only]
        if self.filter is None or not chunk:
            return chunk
        chosen = frozenset(await self.filter(self.task, [each.key for each in chunk]))
        allowed = [each for each in chunk if each.key in chosen]
        if len(allowed) < len(chosen):
            log.warning(Event.GC_FILTER_FOREIGN, resource=self.task.value, count=len(chosen) - len(allowed))
        return allowed

    async def _delete_all(self, wave: Sequence[Doomed], delete_many: DeleteMany) -> None:
        batches = iter([wave[first : first + DELETE_BATCH] for first in range(0, len(wave), DELETE_BATCH)])

        async def work() -> None:
            for batch in batches:
                await _to_its_end(self._delete_batch(batch, delete_many))

        self.instruments.pending(len(wave))
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(self.delete_concurrency, len(wave))):
                    tasks.start_soon(work, name=f"gc.{self.task}.delete")
        finally:
            self.instruments.pending(-len(wave))

    async def _delete_batch(self, batch: Sequence[Doomed], delete_many: DeleteMany) -> None:
        problems: Mapping[str, ShaleError]
        try:
            problems = await delete_many(batch)
        except ProtocolPanic:
            raise
        except ShaleError as error:
            problems = dict.fromkeys((each.key for each in batch), error)
        for key, problem in problems.items():
            self.instruments.error(self.task, problem)
            log.error(Event.GC_DELETE_FAILED, resource=self.task.value, object=key, error=problem)
        self.progress.failed += len(problems)
        gone_bytes = sum(each.size for each in batch if each.key not in problems)
        self.progress.deleted += len(batch) - len(problems)
        self.progress.deleted_bytes += gone_bytes
        self.instruments.deleted(self.task, len(batch) - len(problems), gone_bytes)

    def _tell_progress(self) -> None:
        now_s, progress = self.clock.monotonic_s(), self.progress
        if self.on_progress is not None:
            self.on_progress(self.task, progress)
        if now_s - progress.told_s >= PROGRESS_S:
            progress.told_s = now_s
            log.info(
                Event.GC_PROGRESS,
                resource=self.task.value,
                listed=progress.listed,
                planned=progress.planned,
                deleted=progress.deleted,
            )

    def _tell_end(self, boundary: int | None) -> None:
        progress = self.progress
        self.instruments.planned(self.task, progress.planned)
        if self.options.dry_run and progress.planned:
            told, count, size = Event.GC_PLAN, progress.planned, progress.planned_bytes
        elif progress.deleted:
            told, count, size = Event.GC_DELETE, progress.deleted, progress.deleted_bytes
        else:
            return
        log.info(told, resource=self.task.value, count=count, bytes=size, boundary=boundary)


async def _to_its_end(work: Awaitable[None]) -> None:
    """Finish what has begun even when the process stops, but then wait no longer than ``_STOP_S``."""
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope(shield=True) as scope:
            tasks.start_soon(_hasten, scope)
            await work
        tasks.cancel_scope.cancel()


async def _hasten(scope: anyio.CancelScope) -> None:
    """Once cancelled, bound the time of others."""
    try:
        await anyio.sleep_forever()
    finally:
        scope.deadline = anyio.current_time() + _STOP_S
