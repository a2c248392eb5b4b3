"""The compactor and the collector that SlateDB runs inside a writer.

They are the daemons' own parts, in the writer's event loop.  The library imports no service, so they are found by name;
a program with only the library cannot run them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from shale import plugins
from shale.compat.slatedb.settings.durations import parse_duration_ms
from shale.concurrency.first_error import first_error
from shale.concurrency.task_host import TaskHost
from shale.env import Env
from shale.errors import ShaleError
from shale.format.sst.filter_policy import BloomPolicy
from shale.iter.merge_operator import MergeOperator
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import BLOCK_SIZE_DEFAULT
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

EMBEDDED_GROUP: Final = "shale.embedded"
COMPACTOR: Final = "shale_compactor.embedded:run"
COLLECTOR: Final = "shale_gc.embedded:run"
COLLECTOR_ONCE: Final = "shale_gc.embedded:run_once"
DURATIONS: Final = frozenset(
    {
        "poll_interval",
        "manifest_update_timeout",
        "compactions_poll_interval",
        "heartbeat_interval",
        "commit_compacted_interval",
        "checkpoint_lifetime",
        "worker_heartbeat_timeout",
        "interval",
        "min_age",
    }
)
"""Settings of embedded services that are durations."""
log = get_logger("compat")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedContext:
    """The database of an embedded service."""

    store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    has_own_wal_store: bool = False
    merge_operator: MergeOperator | None = None
    block_size_bytes: int = BLOCK_SIZE_DEFAULT
    filter_policies: tuple[BloomPolicy, ...] = (BloomPolicy(),)
    disk_cache: DiskCacheOptions | None = None


class EmbeddedTasks:
    """Tasks that run beside a handle until ``stop``."""

    def __init__(self) -> None:
        self._host = TaskHost("shale.compat")

    async def start(self, runs: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        """Run each until it ends; an error ends only that one, and is logged."""
        group = await self._host.start()
        for name, run in runs.items():
            group.start_soon(_run, name, run, name=f"compat.{name}")

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        await self._host.stop()


def embedded_tasks(place: EmbeddedContext, values: Mapping[str, Any]) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the services that SlateDB's settings ask for: a compactor, a collector, both, or none.

    Args:
        place: the database.
        values: the content of ``Settings``.

    Raises:
        InvalidRequestError: the services are not installed.
    """
    runs: dict[str, Callable[[], Awaitable[None]]] = {}
    for name, target, options in (
        ("compactor", COMPACTOR, values["compactor_options"]),
        ("collector", COLLECTOR, values["garbage_collector_options"]),
    ):
        if options is not None:
            runs[name] = partial(plugins.resolve(EMBEDDED_GROUP, target), place, in_seconds(options))
    return runs


def in_seconds(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with durations as seconds, in nested tables too."""
    return {
        name: in_seconds(value) if isinstance(value, Mapping) else _number(name, value)
        for name, value in options.items()
    }


def _number(name: str, value: Any) -> Any:
    return parse_duration_ms(value) / 1000 if name in DURATIONS and value is not None else value


async def _run(name: str, run: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    except (ShaleError, ExceptionGroup) as error:
        log.error(Event.EMBEDDED_FAILED, resource=name, error=first_error(error))
