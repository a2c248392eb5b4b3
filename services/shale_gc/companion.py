"""A collector inside another process's event loop: what a writer of SlateDB's interface brings along."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from shale.garbage.collector import Collector
from shale.garbage.options import DELETE_GRACE_S, FENCE_MIN_AGE_S, GcOptions, TaskOptions
from shale.service.companion import Place

_INTERVAL_S = 600.0


class WriterPlace(Place, Protocol):
    """The database, and what its writer knows."""

    @property
    def has_own_wal_store(self) -> bool:
        """Whether the WAL lives elsewhere, out of this collector's reach."""
        ...


async def run(place: WriterPlace, options: Mapping[str, Any]) -> None:
    """Sweep until cancelled, or until the database is gone.

    Args:
        place: the database.
        options: SlateDB's ``garbage_collector_options``; durations are seconds.

    Raises:
        ProtocolPanic: something happened that must not be written on.
        InvalidRequestError: impossible options.
    """
    await _collector(place, options).run()


async def run_once(place: WriterPlace, options: Mapping[str, Any]) -> None:
    """One pass of every task that is on.

    Raises:
        LatestRecordMissing: there is no database.
        ShaleError: the first error of a pass.
        InvalidRequestError: impossible options.
    """
    await _collector(place, options).run_once()


def _collector(place: WriterPlace, options: Mapping[str, Any]) -> Collector:
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
        boundary_files_enabled=options["boundary_files_enabled"],
        db_delete_grace_s=None if place.has_own_wal_store else DELETE_GRACE_S,
    )
    return Collector(place.store, place.root, place.env, chosen, place.metrics)


def _task(options: Mapping[str, Any] | None) -> TaskOptions | None:
    if options is None:
        return None
    return TaskOptions(interval_s=_interval_s(options), min_age_s=options["min_age"], dry_run=options["dry_run"])


def _fences(options: Mapping[str, Any] | None) -> TaskOptions | None:
    """SlateDB deletes fences that an old writer may still run into, if it is told so; here that is only tried."""
    task = _task(options)
    if task is None or task.min_age_s >= FENCE_MIN_AGE_S:
        return task
    return replace(task, dry_run=True)


def _interval_s(options: Mapping[str, Any]) -> float:
    interval_s: float | None = options["interval"]
    return interval_s or _INTERVAL_S
