"""GC inside a writer process, for writers with SlateDB's API, which run GC by default."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from shale.gc.collector import Collector
from shale.gc.options import DELETE_GRACE_PERIOD_S, FENCE_MIN_AGE_S, GcOptions, TaskOptions
from shale.service.embedded import ServiceContext

_INTERVAL_S = 600.0


class GcContext(ServiceContext, Protocol):
    """The writer's database."""

    @property
    def has_own_wal_store(self) -> bool:
        """Whether the WAL is in a store of its own, which this collector cannot reach."""
        ...


async def run(place: GcContext, options: Mapping[str, Any]) -> None:
    """Run GC until cancelled or until the database is deleted.

    Args:
        place: the writer's database.
        options: SlateDB's ``garbage_collector_options``; durations in seconds.

    Raises:
        ProtocolPanic: a protocol invariant is broken; nothing more may be written.
        InvalidRequestError: invalid options.
    """
    await _collector(place, options).run()


async def run_once(place: GcContext, options: Mapping[str, Any]) -> None:
    """Run one pass of each enabled task.

    Raises:
        LatestRecordMissing: there is no database.
        ShaleError: the first error of a pass.
        InvalidRequestError: invalid options.
    """
    await _collector(place, options).run_once()


def _collector(place: GcContext, options: Mapping[str, Any]) -> Collector:
    wal, fences = options["wal_options"], options["wal_fence_options"]
    if place.has_own_wal_store:
        wal = fences = None
    detach = options["detach_options"]
    chosen = GcOptions(
        manifest=_task(options["manifest_options"]),
        wal=_task(wal),
        wal_fence=_fences(fences),
        compacted=_task(options["compacted_options"]),
        compactions=_task(options["compactions_options"]),
        detach=None if detach is None else TaskOptions(interval_s=_interval_s(detach)),
        staged=None,  # SlateDB has no such task
        boundary_files_enabled=options["boundary_files_enabled"],
        delete_grace_period_s=None if place.has_own_wal_store else DELETE_GRACE_PERIOD_S,
    )
    return Collector(place.store, place.root, place.env, chosen, place.metrics)


def _task(options: Mapping[str, Any] | None) -> TaskOptions | None:
    if options is None:
        return None
    return TaskOptions(interval_s=_interval_s(options), min_age_s=options["min_age"], dry_run=options["dry_run"])


def _fences(options: Mapping[str, Any] | None) -> TaskOptions | None:
    """Return the fence task; a ``min_age`` below the safe minimum, which SlateDB accepts, becomes a dry run."""
    task = _task(options)
    if task is None or task.min_age_s >= FENCE_MIN_AGE_S:
        return task
    return replace(task, dry_run=True)


def _interval_s(options: Mapping[str, Any]) -> float:
    interval_s: float | None = options["interval"]
    return interval_s or _INTERVAL_S
