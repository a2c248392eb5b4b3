"""A worker's access to the compactions file; each write is also a heartbeat (docs/reference/protocol.md 6.9).

A write costs the same for one job or for all, so each write stamps all running jobs and publishes their progress.
Writes of one worker are serialized: of two concurrent ones, one would conflict.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import anyio

from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore, StoredCompactions
from shale.protocol.versioned import Versioned
from shale.types import Compaction, CompactionContext, Compactions, Ulid
from shale_compactor.worker import claims

_CAUTIOUS_WRITES = 4
"""Number of writes after a conflict that read the newest version first, which costs less than another conflict."""

Progress: TypeAlias = Mapping[Ulid, CompactionContext | None]


class CompactionsClient:
    """Reads and writes the entries of one worker.

    Args:
        progress: returns the progress of each running job.
        on_seen: called with each version that is read, before it is changed.
        on_stamped: called with the time of each written heartbeat, in milliseconds.
    """

    def __init__(
        self,
        store: CompactionsStore,
        worker_id: str,
        env: Env,
        *,
        progress: Callable[[], Progress],
        on_seen: Callable[[Compactions], None],
        on_stamped: Callable[[int], None],
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._env = env
        self._progress = progress
        self._on_seen = on_seen
        self._on_stamped = on_stamped
        self._stored: StoredCompactions | None = None
        self._turn = anyio.Lock()
        self._published: Progress = {}
        self.last_heartbeat_s = -math.inf
        """Monotonic time at which the last heartbeat started."""
        self._cautious_left = 0
        self._is_in_doubt = False
        self.write_took_s = 0.0
        """Duration of the last write."""

    @property
    def is_open(self) -> bool:
        """Whether the compactions file exists; before that, nothing can have been claimed."""
        return self._stored is not None

    @property
    def has_jobs(self) -> bool:
        """Whether any job is running."""
        return bool(self._progress())

    @property
    def is_contended(self) -> bool:
        """Whether one of the last writes conflicted."""
        return self._cautious_left > 0

    @property
    def has_news(self) -> bool:
        """Whether a running job has unpublished progress."""
        progress = self._progress()
        return any(context is not None and context != self._published.get(id_) for id_, context in progress.items())

    async def refresh(self) -> Compactions | None:
        """Return the newest version; ``None`` while there is none."""
        if self._stored is None:
            if await self._store.try_read_latest() is None:
                return None
            self._stored = await self._store.load()
        value = (await self._stored.refresh()).value
        self._on_seen(value)
        return value

    async def claim(self, choose: Callable[[Compactions, int], set[Ulid]]) -> list[Compaction]:
        """Claim entries.

        Args:
            choose: returns the ids to claim; called with the current value and the number of entries that this call
                already owns through a write whose response was lost.

        Returns:
            The entries that are Running under this worker now.
        """
        attempted: set[Ulid] = set()
        sent_s, sent_ms = -math.inf, 0

        def change(value: Compactions) -> Compactions | None:
            nonlocal sent_s, sent_ms
            # After a lost response: an entry that this call tried to claim and that has this worker's id is claimed.
            got = sum(claims.owns(value.get(id_), self._worker_id) for id_ in attempted)
            chosen = choose(value, got)
            attempted.update(chosen)
            sent_s, sent_ms = self._env.clock.monotonic_s(), self._env.clock.now_ms()
            return claims.claim(value, chosen, self._worker_id, sent_ms) if chosen else None

        value = await self._write(change)
        got = [entry for entry in value.entries if entry.id in attempted and claims.owns(entry, self._worker_id)]
        if got:
            self.last_heartbeat_s = max(self.last_heartbeat_s, sent_s)  # a claim is the first heartbeat
            self._on_stamped(sent_ms)
        return got

    async def heartbeat(self) -> None:
        """Write a heartbeat with the progress of all running jobs; without a job, make no request."""
        if self.has_jobs:
            self.last_heartbeat_s = self._env.clock.monotonic_s()
            await self._write(lambda _value: None, always=True)

    async def finish(self, change: claims.Edit) -> Compactions:
        """Store a result; return the version that has it, or the one that shows that it is too late."""
        return await self._write(change)

    async def fail(self, id_: Ulid) -> Compactions:
        """End an owned job as Failed."""
        return await self._write(lambda value: claims.fail(value, id_, self._worker_id, self._env.clock.now_ms()))

    async def release(self, progress: Progress) -> Compactions:
        """Release entries with their progress."""
        return await self._write(lambda value: claims.release(value, progress, self._worker_id))

    async def release_all(self) -> list[Ulid]:
        """Release all entries with this worker's id, also those of an interrupted claim; return their ids.

        Usually this is one write: a stopping process has little time, so the newest version is read only if needed.
        """
        if self._stored is None:
            return []
        if self._is_in_doubt:
            await self.refresh()
        owned: list[Ulid] = []

        def change(value: Compactions) -> Compactions | None:
            owned[:] = claims.owned(value, self._worker_id)
            return claims.release(value, dict.fromkeys(owned) | dict(self._progress()), self._worker_id)

        await self._write(change)
        return owned

    async def _write(self, change: claims.Edit, *, always: bool = False) -> Compactions:
        """Write a change together with a heartbeat; without a change, write only if ``always``."""
        assert self._stored is not None, "refreshed before"
        tries, now_ms = 0, 0
        published: Progress | None = None

        def both(current: Versioned[Compactions]) -> Compactions | None:
            nonlocal tries, now_ms, published
            tries += 1
            self._on_seen(current.value)
            published = None
            changed = change(current.value)
            if changed is None and not always:
                return None
            now_ms = self._env.clock.now_ms()
            progress = self._progress()
            stamped = claims.heartbeat(changed or current.value, progress, self._worker_id, now_ms)
            if stamped is not None:
                published = progress
            return stamped or changed

        async with self._turn:
            started_s = self._env.clock.monotonic_s()
            self._is_in_doubt = True  # stays set if this write is cancelled
            if self.is_contended:
                await self._stored.catch_up()
            committed = await self._stored.apply(both)
            self._is_in_doubt = False
            self.write_took_s = self._env.clock.monotonic_s() - started_s
        self._cautious_left = _CAUTIOUS_WRITES if tries > 1 else max(0, self._cautious_left - 1)
        if published is not None:
            self.last_heartbeat_s, self._published = started_s, published
            self._on_stamped(now_ms)
        return committed.value
