"""One pass of one task: executes a plan while it is made, a few thousand objects at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Clock
from shale.errors import ProtocolPanic, ShaleError
from shale.gc.metrics import GcMetrics
from shale.gc.options import GcFilter, Task, TaskOptions
from shale.gc.plan import Candidate, PlannedObject
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

DELETE_BATCH = 250
"""Objects in one bulk delete request; a store without bulk deletes gets one request for each object."""

STOP_S = 10.0
"""How long a stopping process waits for deletions that have started."""

PROGRESS_S = 10.0
"""Interval between progress logs."""
log = get_logger("gc")

DeleteMany: TypeAlias = Callable[[Sequence[Candidate]], Awaitable[Mapping[str, ShaleError]]]
"""Deletes objects and returns the errors by key; a missing object is not an error."""


class ListedObject(Protocol):
    """An object of a listing."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...


@dataclass(slots=True)
class GcProgress:
    """Progress of a pass: objects listed, planned, deleted, and failed to delete; ``problem``: the first failure."""

    listed: int = 0
    listed_bytes: int = 0
    planned: int = 0
    planned_bytes: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    failed: int = 0
    logged_s: float = 0.0
    problem: ShaleError | None = None

    def add(self, other: "GcProgress") -> None:
        """Add the counts of a part of the pass."""
        for name in ("listed", "listed_bytes", "planned", "planned_bytes", "deleted", "deleted_bytes", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problem = self.problem or other.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of one task.

    Args:
        now_ms: time in milliseconds, sampled before the first read of the pass.
        only: the keys that may be deleted; ``None``: any key.
        filter: the user's filter; it can exclude objects and cannot add any.
        on_object: called with each object of the plan.
        on_progress: called after each chunk.
    """

    task: Task
    now_ms: int
    options: TaskOptions
    instruments: GcMetrics
    delete_concurrency: int
    clock: Clock
    only: frozenset[str] | None = None
    filter: GcFilter | None = None
    on_object: Callable[[PlannedObject], None] | None = None
    on_progress: Callable[[Task, GcProgress], None] | None = None
    progress: GcProgress = field(default_factory=GcProgress)

    async def execute(
        self,
        chunks: AsyncIterator[Sequence[Candidate]],
        delete_many: DeleteMany,
        *,
        why: str,
        boundary: int | None = None,
        advance: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Delete the objects of a plan while it is made; in a dry run, only log them.

        Args:
            why: the reason that logs and saved plans show.
            boundary: the boundary that must be durable before the first deletion.
            advance: makes the boundary durable.
        """
        self.progress.logged_s = self.clock.monotonic_s()
        if boundary is not None and advance is not None and not self.options.dry_run:
            await advance(boundary)
        try:
            await self._execute_chunks(chunks, delete_many, why, boundary)
        finally:
            self._report_end(boundary)

    def count_listed(self, objects: Collection[ListedObject]) -> None:
        """Count objects of a listing."""
        self.progress.listed += len(objects)
        self.progress.listed_bytes += sum(each.size for each in objects)

    def plan(self, candidates: Iterable[Candidate], why: str, boundary: int | None = None) -> None:
        """Record objects to delete."""
        is_reported = self.on_object is not None or log.is_debug_enabled
        for each in candidates:
            self.progress.planned += 1
            self.progress.planned_bytes += each.size
            if is_reported:
                age_ms = self.now_ms - each.made_ms
                self._report_object(PlannedObject(self.task, each.key, each.size, age_ms, why, boundary))
        self.instruments.planned(self.task, self.progress.planned)

    def _report_object(self, planned: PlannedObject) -> None:
        event = Event.GC_PLAN if self.options.dry_run else Event.GC_DELETE
        log.debug(event, resource=self.task.value, object=planned.key, bytes=planned.size, reason=planned.reason)
        if self.on_object is not None:
            self.on_object(planned)

    async def _execute_chunks(
        self, chunks: AsyncIterator[Sequence[Candidate]], delete_many: DeleteMany, why: str, boundary: int | None
    ) -> None:
        wave: list[Candidate] = []
        async for chunk in chunks:
            allowed = await self._allowed(chunk)
            self.plan(allowed, why, boundary)
            if not self.options.dry_run:
                wave += allowed
            if len(wave) >= self.delete_concurrency * DELETE_BATCH:
                await self._delete_all(wave, delete_many)
                wave = []
            self._report_progress()
        await self._delete_all(wave, delete_many)

    async def _allowed(self, chunk: Sequence[Candidate]) -> Sequence[Candidate]:
        if self.only is not None:
            chunk = [each for each in chunk if each.key in self.only]
        if self.filter is None or not chunk:
            return chunk
        chosen = frozenset(await self.filter(self.task, [each.key for each in chunk]))
        allowed = [each for each in chunk if each.key in chosen]
        if len(allowed) < len(chosen):
            log.warning(Event.GC_FILTER_UNKNOWN_KEYS, resource=self.task.value, count=len(chosen) - len(allowed))
        return allowed

    async def _delete_all(self, wave: Sequence[Candidate], delete_many: DeleteMany) -> None:
        batches = iter([wave[first : first + DELETE_BATCH] for first in range(0, len(wave), DELETE_BATCH)])

        async def work() -> None:
            for batch in batches:
                await _complete_or_time_out(self._delete_batch(batch, delete_many))

        self.instruments.pending(len(wave))
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(self.delete_concurrency, len(wave))):
                    tasks.start_soon(work, name=f"gc.{self.task}.delete")
        finally:
            self.instruments.pending(-len(wave))

    async def _delete_batch(self, batch: Sequence[Candidate], delete_many: DeleteMany) -> None:
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
        self.progress.problem = self.progress.problem or next(iter(problems.values()), None)
        gone_bytes = sum(each.size for each in batch if each.key not in problems)
        self.progress.deleted += len(batch) - len(problems)
        self.progress.deleted_bytes += gone_bytes
        self.instruments.deleted(self.task, len(batch) - len(problems), gone_bytes)

    def _report_progress(self) -> None:
        now_s, progress = self.clock.monotonic_s(), self.progress
        if self.on_progress is not None:
            self.on_progress(self.task, progress)
        if now_s - progress.logged_s >= PROGRESS_S:
            progress.logged_s = now_s
            log.info(
                Event.GC_PROGRESS,
                resource=self.task.value,
                listed=progress.listed,
                planned=progress.planned,
                deleted=progress.deleted,
            )

    def _report_end(self, boundary: int | None) -> None:
        progress = self.progress
        self.instruments.planned(self.task, progress.planned)
        if self.options.dry_run and progress.planned:
            event, count, size = Event.GC_PLAN, progress.planned, progress.planned_bytes
        elif progress.deleted:
            event, count, size = Event.GC_DELETE, progress.deleted, progress.deleted_bytes
        else:
            return
        log.info(event, resource=self.task.value, count=count, bytes=size, boundary=boundary)


async def _complete_or_time_out(work: Awaitable[None]) -> None:
    """Run to completion even if cancelled, but after a cancellation for at most ``STOP_S``."""
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope(shield=True) as scope:
            tasks.start_soon(_set_deadline_when_cancelled, scope)
            await work
        tasks.cancel_scope.cancel()


async def _set_deadline_when_cancelled(scope: anyio.CancelScope) -> None:
    """Set the deadline of ``scope`` once cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        scope.deadline = anyio.current_time() + STOP_S
