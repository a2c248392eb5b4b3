"""What a worker reads and writes of the compactions file; every write is also a sign of life (docs/protocol.md 6.9).

A write costs the same whether it carries one job or all of them, so each one stamps all running jobs and publishes
their progress.  Writes of one worker wait for each other: two at once would only make one of them a conflict.
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
"""So many writes after a conflict look for the newest version first, which costs less than another conflict."""

Progress: TypeAlias = Mapping[Ulid, CompactionContext | None]


class Ledger:
    """The entries of one worker.

    ``progress`` tells what each running job has finished.  ``on_seen`` is told every version that is met, before
    anything is written on top of it.  ``on_stamped`` gets the time of every heartbeat that was written.
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
        self.last_beat_s = -math.inf
        """Monotonic time at which the newest heartbeat was begun."""
        self._cautious_left = 0
        self._is_in_doubt = False
        self.write_took_s = 0.0
        """How long the last write was under way."""

    @property
    def is_open(self) -> bool:
        """Whether a coordinator has been seen; nothing can be claimed, or have been claimed, before."""
        return self._stored is not None

    @property
    def has_jobs(self) -> bool:
        """Whether there is anything to keep alive."""
        return bool(self._progress())

    @property
    def is_contended(self) -> bool:
        """Whether one of the last writes met a conflict."""
        return self._cautious_left > 0

    @property
    def has_news(self) -> bool:
        """Whether a running job has finished something that is not published yet."""
        progress = self._progress()
        return any(context is not None and context != self._published.get(id_) for id_, context in progress.items())

    async def refresh(self) -> Compactions | None:
        """The newest version; ``None`` while there is none at all."""
        if self._stored is None:
            if await self._store.try_read_latest() is None:
                return None
            self._stored = await self._store.load()
        value = (await self._stored.refresh()).value
        self._on_seen(value)
        return value

    async def claim(self, choose: Callable[[Compactions, int], set[Ulid]]) -> list[Compaction]:
        """Take what ``choose`` picks; it is told how many entries it has already got by a write whose answer was lost.

        Returns:
            the entries that are Running under this worker now.
        """
        attempted: set[Ulid] = set()
        sent_s, sent_ms = -math.inf, 0

        def change(value: Compactions) -> Compactions | None:
            nonlocal sent_s, sent_ms
            # An answer that got lost: what we tried to take and now carries our name is ours.
            got = sum(claims.owns(value.get(id_), self._worker_id) for id_ in attempted)
            chosen = choose(value, got)
            attempted.update(chosen)
            sent_s, sent_ms = self._env.clock.monotonic_s(), self._env.clock.now_ms()
            return claims.claim(value, chosen, self._worker_id, sent_ms) if chosen else None

        value = await self._write(change)
        got = [entry for entry in value.entries if entry.id in attempted and claims.owns(entry, self._worker_id)]
        if got:
            self.last_beat_s = max(self.last_beat_s, sent_s)  # a claim is the first heartbeat
            self._on_stamped(sent_ms)
        return got

    async def beat(self) -> None:
        """Stamp all running jobs and publish their progress; without a job nothing is asked or written."""
        if self.has_jobs:
            self.last_beat_s = self._env.clock.monotonic_s()
            await self._write(lambda _value: None, always=True)

    async def finish(self, change: claims.Edit) -> Compactions:
        """Hand a result over; returns the version that holds it, or the one that shows that it comes too late."""
        return await self._write(change)

    async def release(self, progress: Progress) -> Compactions:
        """Give entries back with what they have finished."""
        return await self._write(lambda value: claims.release(value, progress, self._worker_id))

    async def release_all(self) -> list[Ulid]:
        """Give back whatever carries our name, also what an interrupted claim may have left; returns their ids.

        Usually this is one write: whoever stops has little time, and a look at the newest version may take it all.
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
        """Commit a change together with a heartbeat; a heartbeat alone only if that is what is asked for."""
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
            self._is_in_doubt = True  # and stays so, if this is cut short
            if self.is_contended:
                await self._stored.catch_up()
            committed = await self._stored.apply(both)
            self._is_in_doubt = False
            self.write_took_s = self._env.clock.monotonic_s() - started_s
        self._cautious_left = _CAUTIOUS_WRITES if tries > 1 else max(0, self._cautious_left - 1)
        if published is not None:
            self.last_beat_s, self._published = started_s, published
            self._on_stamped(now_ms)
        return committed.value
