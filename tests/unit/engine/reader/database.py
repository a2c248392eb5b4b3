"""A database in memory, and a follower of it without a ``DbReader``."""

import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import shale
from shale.engine.read.read_options import ReadOptions
from shale.engine.reader.follower import Follower
from shale.engine.reader.options import ReaderOptions
from shale.engine.reader.state import ReaderStateBuilder
from shale.engine.reader.wal_replay import WalReplay
from shale.env import Env, InlineCpu
from shale.kernels.rows import entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint
from tests.clocks import ManualClock

LIFETIME_S = 600


@dataclass
class Database:
    """A database in memory and a clock that a test moves."""

    clock: ManualClock = field(default_factory=ManualClock)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.env = Env(self.clock, random.Random(1), InlineCpu())

    async def write(self, *keys: bytes, flush: str = "memtable") -> None:
        """Write rows, into L0 or only into the WAL."""
        async with shale.Db.open("db", store=self.store, env=self.env) as db:
            for key in keys:
                await db.put(key, b"v")
            await db.flush(flush)
            await db.close("wal")

    def manifests(self, store: Any = None) -> ManifestStore:
        """The manifests as a process that has just started sees them."""
        return ManifestStore(store if store is not None else self.store, "db", self.env)

    async def follower(self, *, store: Any = None, **options: Any) -> Follower:
        """A follower that has not opened yet."""
        store = store if store is not None else self.store
        manifests = self.manifests(store)
        wal, reader = WalStore(store, "db"), SstReader(store, SstPaths("db"), BlockCache(1 << 20), self.env)
        chosen = ReaderOptions(checkpoint_lifetime_s=LIFETIME_S, **options)
        return Follower(
            manifests,
            await manifests.load(),
            ReaderStateBuilder(reader, ReadOptions()),
            WalReplay(wal, manifests, self.env, chosen),
            chosen,
            env=self.env,
            metrics=self.metrics,
        )

    async def opened(self, **options: Any) -> Follower:
        """A follower that serves its first state."""
        follower = await self.follower(**options)
        await follower.open()
        return follower

    async def leased(self) -> tuple[Follower, int]:
        """A follower that serves its first state, and the time when its lease expires."""
        await self.write(b"a")
        follower = await self.opened()
        assert follower.expire_ms is not None
        return follower, follower.expire_ms

    async def checkpoints(self) -> dict[UUID, Checkpoint]:
        """The checkpoints in the newest manifest."""
        return {entry.id: entry for entry in (await self.manifests().read_latest()).value.checkpoints}

    def count(self, name: str) -> float:
        """A counter of the follower."""
        return self.metrics.registry.get_sample_value(name, {"db": ""}) or 0.0


def rows_in_wal(follower: Follower) -> list[bytes]:
    """Return the keys that were replayed, oldest table first."""
    tables = follower.state.tables.replayed
    return [entry.key for replayed in tables for entry in entries_from_rows(replayed.table.rows())]
