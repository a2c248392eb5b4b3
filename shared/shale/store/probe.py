"""The checks of the preflight, on scratch keys that are deleted afterwards.

Each check returns ``None`` for success, else what it observed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import anyio

from shale.env import Env
from shale.errors import ConflictError, ShaleError, StoreUnsafe
from shale.format.names import preflight_prefix
from shale.store.port import CREATE, NOT_MODIFIED, OVERWRITE, ETag, GetResult, ObjectStore, PutMode, Update
from shale.store.transactional.port import SCHEMA_VERSION
from shale.store.two_phase.store import two_phase_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

log = get_logger("store")

CLOCK_SKEW_MAX_MS = 5_000
"""A larger skew makes ages misleading that are computed from both clocks; the protocols tolerate more."""

_MULTIPART_BYTES = 17 * 1024 * 1024
_CLEAN_UP_S = 2.0


class SkippedError(Exception):
    """The store reports that it does not support this."""


class Probe:
    """Runs the checks and collects their keys."""

    def __init__(self, store: ObjectStore, env: Env, prefix: str) -> None:
        self._store = store
        self._env = env
        self._folder = f"{preflight_prefix(prefix)}{env.ids.ulid()}"
        self._keys: set[str] = set()

    async def records(self) -> str | None:
        two_phase = two_phase_of(self._store)
        assert two_phase is not None, "asked for in the two-phase mode only"
        version = await two_phase.records.schema_version()
        if version == SCHEMA_VERSION:
            await two_phase.check_id()
            return None
        return f"tables of version {version}" if version else "no tables: run 'shale cas init'"

    async def create_conflict(self) -> str | None:
        key = self._key("create")
        await self._store.put(key, b"1", mode=CREATE)
        if await self._wins(key, b"2", CREATE):
            return "the second create succeeded"
        return await self._differs(key, b"1")

    async def update_stale(self) -> str | None:
        key = self._key("update")
        first = await self._etag(key, b"1", CREATE)
        await self._etag(key, b"2", Update(first))
        if await self._wins(key, b"3", Update(first)):
            return "an update with the etag of an older version succeeded"
        return await self._differs(key, b"2")

    async def race_creates(self, rounds: int, racers: int) -> str | None:
        for number in range(rounds):
            if (seen := await self._race(self._key(f"create-race-{number}"), racers, CREATE)) is not None:
                return seen
        return None

    async def race_updates(self, rounds: int, racers: int) -> str | None:
        for number in range(rounds):
            key = self._key(f"update-race-{number}")
            # A late duplicate of an unconditional put would replace what the winner wrote.
            start = await self._etag(key, b"start", CREATE)
            if (seen := await self._race(key, racers, Update(start))) is not None:
                return seen
        return None

    async def read_after_write(self) -> str | None:
        key = self._key("read")
        for body in (b"1", b"2", b"3"):
            await self._store.put(key, body)
            if (seen := await self._differs(key, body)) is not None:
                return seen
        return None

    async def list_after_put(self) -> str | None:
        keys = sorted(self._key(f"list/{number:02}") for number in range(12))
        for key in keys:
            await self._store.put(key, b"x")
        listed = [meta.key for meta in await self._store.list(f"{self._folder}/list/")]
        return None if listed == keys else f"{len(listed)} keys instead of {len(keys)}"

    async def ranges(self) -> str | None:
        key, body = self._key("ranges"), bytes(range(256)) * 256
        await self._store.put(key, body)
        size = len(body)
        for start, end in ((0, 1), (100, 70_00), (size - 16, size), (0, size)):
            part = await self._store.get_range(key, start, end)
            if part is None or bytes(part) != body[start:end]:
                return f"bytes {start} to {end} were {'missing' if part is None else 'others'}"
        return None

    async def conditional_get(self) -> str | None:
        key = self._key("conditional")
        etag = await self._etag(key, b"1", OVERWRITE)
        if await self._store.get_if_changed(key, etag) is not NOT_MODIFIED:
            return "it was sent again"
        await self._store.put(key, b"2")
        changed = await self._store.get_if_changed(key, etag)
        return (
            None if isinstance(changed, GetResult) and bytes(changed.data) == b"2" else "a changed object was not sent"
        )

    async def multipart(self) -> str | None:
        key, part, count = self._key("multipart"), bytes(range(256)) * 4096, _MULTIPART_BYTES // (1024 * 1024)

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield part

        await self._store.put_stream(key, parts())
        return await self._differs(key, part * count)

    async def metadata(self) -> str | None:
        if two_phase_of(self._store) is not None:
            raise SkippedError("the ids of puts are in the commit records")
        if not self._store.supports_attributes:
            raise SkippedError("the store keeps no metadata: a lost answer looks like a conflict")
        key = self._key("metadata")
        await self._store.put(key, b"1", attributes={"shalecheck": "yes"})
        meta = await self._store.head(key)
        found = (meta.attributes or {}).get("shalecheck") if meta is not None else None
        return None if found == "yes" else "it did not"

    async def delete_twice(self) -> str | None:
        key = self._key("delete")
        await self._store.put(key, b"1")
        await self._store.delete(key)
        await self._store.delete(key)
        return None if await self._store.head(key) is None else "the object is still there"

    async def clock(self) -> str | None:
        skew_ms = await self.skew_ms()
        if abs(skew_ms) <= CLOCK_SKEW_MAX_MS:
            return None
        log.warning(Event.STORE_CLOCK_SKEWED, skew_ms=skew_ms)
        return f"{skew_ms} ms"

    async def skew_ms(self) -> int:
        """Return how far the store's clock is ahead of ours; up to one second may be rounding."""
        key = self._key("clock")
        before_ms = self._env.clock.now_ms()
        await self._store.put(key, b"1")
        after_ms = self._env.clock.now_ms()
        meta = await self._store.head(key)
        if meta is None or before_ms - 1000 <= meta.last_modified_ms <= after_ms:
            return 0
        return meta.last_modified_ms - (before_ms + after_ms) // 2

    async def clean_up(self) -> None:
        """Delete the scratch keys as far as the store allows; leftovers are harmless and recognisable by name."""
        # One request where the store can: one for each key would take longer than that on a slow store.
        with anyio.move_on_after(_CLEAN_UP_S, shield=True), suppress(ShaleError):
            await self._store.delete_many(sorted(self._keys))

    def _key(self, name: str) -> str:
        key = f"{self._folder}/{name}"
        self._keys.add(key)
        return key

    async def _etag(self, key: str, body: bytes, mode: PutMode) -> ETag:
        etag = await self._store.put(key, body, mode=mode)
        if not etag:
            raise StoreUnsafe(f"{self._store.url}: a put returned no etag")
        return etag

    async def _wins(self, key: str, body: bytes, mode: PutMode) -> bool:
        try:
            await self._store.put(key, body, mode=mode)
        except ConflictError:
            return False
        return True

    async def _differs(self, key: str, body: bytes) -> str | None:
        got = await self._store.get(key)
        if got is None:
            return "the object is gone"
        return None if bytes(got.data) == body else "other bytes were read"

    async def _race(self, key: str, racers: int, mode: PutMode) -> str | None:
        winners: list[bytes] = []

        async def run(number: int) -> None:
            body = b"racer %d" % number
            if await self._wins(key, body, mode):
                winners.append(body)

        failures: list[ShaleError] = []
        async with anyio.create_task_group() as tasks:
            for number in range(racers):
                tasks.start_soon(_kept, run, number, failures)
        if failures:
            raise failures[0]
        if len(winners) != 1:
            return f"{len(winners)} winners"
        return await self._differs(key, winners[0])


async def _kept(run: Callable[[int], Awaitable[None]], number: int, failures: list[ShaleError]) -> None:
    """Keep the error for the caller: a task group would wrap it."""
    try:
        await run(number)
    except ShaleError as error:
        failures.append(error)
