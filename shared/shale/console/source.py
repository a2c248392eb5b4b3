"""What the console shows, read at most once per interval for all of its clients, and only while there are some."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import orjson

from shale.admin.context import AdminContext
from shale.admin.gc import GcAdmin
from shale.console.database_view import checkpoints_json, compactions_json, manifest_json
from shale.errors import LatestRecordMissing, ShaleError, UnavailableError
from shale.telemetry.recent_events import RecentEvents
from shale.types import Manifest

INTERVAL_S = 2.0
PLAN_INTERVAL_S = 30.0
PLAN_OBJECTS_MAX = 100
PLAN_MAX_S = 60.0
STORE_MAX_S = 5.0
EXISTENCE_INTERVAL_S = 10.0
"""How often the latest manifest is looked for: one that is known is not read again, so its deletion goes unnoticed."""
PINNED_MAX = 16
"""Manifests of checkpoints that are kept in memory, to show what they pin."""

Part = Callable[[], Mapping[str, Any]]


class ConsoleSource:
    """Reads the state of one database and of the process.

    Args:
        place: the database; nothing is written to it.
        process: returns the status of the process, without I/O.
        counters: returns numbers of the process, without I/O.
        events: the newest lines of the log.
    """

    def __init__(self, place: AdminContext, process: Part, counters: Part, events: RecentEvents) -> None:
        self._place = place
        self._process = process
        self._counters = counters
        self._events = events
        self._clock = place.env.clock
        self._state_lock = anyio.Lock()
        self._plan_lock = anyio.Lock()
        self._database: dict[str, Any] = {}
        self._database_ms: int | None = None
        self._existed_s = -EXISTENCE_INTERVAL_S
        self._pinned: dict[int, Manifest] = {}
        self._state: bytes = b""
        self._state_s = -INTERVAL_S
        self._plan: bytes = b""
        self._plan_s = -PLAN_INTERVAL_S

    async def state(self) -> bytes:
        """Return the present state as JSON; if the store does not answer, the last one with the problem."""
        async with self._state_lock:
            if self._clock.monotonic_s() - self._state_s >= INTERVAL_S:
                self._state = orjson.dumps(await self._read(), default=str)
                self._state_s = self._clock.monotonic_s()
            return self._state

    async def candidates(self) -> bytes:
        """Return what a pass of the collector would delete now, as JSON; it lists the store, so it is kept a while.

        Raises:
            UnavailableError: the store cannot be listed within ``PLAN_MAX_S``.
            ShaleError: the store refuses, or there is no database.
        """
        with anyio.move_on_after(PLAN_MAX_S):
            async with self._plan_lock:
                if self._clock.monotonic_s() - self._plan_s >= PLAN_INTERVAL_S:
                    plan = (await GcAdmin(self._place).plan()).as_json()
                    plan["objects"] = plan["objects"][:PLAN_OBJECTS_MAX]
                    self._plan = orjson.dumps(plan)
                    self._plan_s = self._clock.monotonic_s()
                return self._plan
        raise UnavailableError(f"the store could not be listed within {PLAN_MAX_S:g} s")

    async def _read(self) -> dict[str, Any]:
        problem: str | None = f"the store did not answer within {STORE_MAX_S:g} s"
        try:
            with anyio.move_on_after(STORE_MAX_S):
                self._database = await self._read_database()
                self._database_ms = self._clock.now_ms()
                problem = None
        except ShaleError as error:
            problem = f"{type(error).__name__}: {error}"
        return {
            "now_ms": self._clock.now_ms(),
            "problem": problem,
            "process": dict(self._process()),
            "counters": dict(self._counters()),
            "database": self._database,
            "database_ms": self._database_ms,
            "events": self._events.newest(),
        }

    async def _read_database(self) -> dict[str, Any]:
        place, now_ms = self._place, self._clock.now_ms()
        # As everywhere: compactions first.  The manifest then has all results that they call finished.
        compactions = await place.compactions.try_read_latest()
        latest = await place.manifests.read_latest()
        await self._require_existing(latest.id)
        manifest = latest.value
        await self._read_pinned(manifest)
        return {
            **manifest_json(latest.id, manifest, now_ms),
            "boundaries": {
                "manifest": await place.manifests.boundary(),
                "compactions": await place.compactions.boundary(),
            },
            "checkpoints": checkpoints_json(manifest, self._pinned, now_ms),
            "checkpoint_count": len(manifest.checkpoints),
            "compactions": compactions_json(None if compactions is None else compactions.value, manifest),
            "compaction_count": 0 if compactions is None else len(compactions.value.entries),
        }

    async def _require_existing(self, manifest_id: int) -> None:
        """Look for the latest manifest, now and then.

        Raises:
            LatestRecordMissing: it is gone.  The next read starts anew: another database may be in its place.
        """
        place = self._place
        if self._clock.monotonic_s() - self._existed_s < EXISTENCE_INTERVAL_S:
            return
        key = place.manifests.namespace.key(manifest_id)
        if await place.stores.main.head(key) is None:
            self._place = AdminContext.of(place.stores, place.root, place.env, place.metrics, component=place.component)
            self._pinned = {}
            raise LatestRecordMissing(f"the database is gone: {key} was its latest manifest, and does not exist")
        self._existed_s = self._clock.monotonic_s()

    async def _read_pinned(self, manifest: Manifest) -> None:
        """Read the manifests of checkpoints, one in each round: they do not change."""
        wanted = list(dict.fromkeys(int(each.manifest_id) for each in manifest.checkpoints))[:PINNED_MAX]
        self._pinned = {id_: state for id_, state in self._pinned.items() if id_ in wanted}
        missing = next((id_ for id_ in wanted if id_ not in self._pinned), None)
        if missing is not None:
            found = await self._place.manifests.read(missing)
            if found is not None:
                self._pinned[missing] = found
