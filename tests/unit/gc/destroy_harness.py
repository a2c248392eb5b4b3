"""Databases in memory to be destroyed, and the objects that remain in a store."""

import random
from dataclasses import dataclass, field
from typing import Any

import shale
from shale.env import Env, InlineCpu
from shale.gc.hard_destroy import DestroyTarget
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from tests.clocks import ManualClock

DAY_MS = 86_400_000


@dataclass
class Harness:
    """A store, a second one for WALs, and a clock that the test advances."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.wal_store = MemoryStore(self.clock, url="memory://wal/")
        self.env = Env(self.clock, random.Random(1), InlineCpu())

    def target(self, root: str = "db", *, store: Any = None, wal: bool = False) -> DestroyTarget:
        """Return the database as one run of a command sees it."""
        return DestroyTarget(
            store=store if store is not None else self.store,
            root=root,
            env=self.env,
            metrics=Metrics(),
            wal_store=self.wal_store if wal else None,
        )

    def open(self, root: str = "db", **settings: Any) -> Any:
        """Open a writer."""
        return shale.Db.open(root, store=self.store, env=self.env, **settings)

    async def make(self, root: str = "db", **settings: Any) -> None:
        """Create a database with a row in L0 and another in the WAL."""
        async with self.open(root, **settings) as db:
            await db.put(b"in l0", b"1")
            await db.flush("memtable")
            await db.put(b"in the wal", b"2")
            await db.flush("wal")
            await db.close("wal")

    def manifests(self, root: str = "db") -> ManifestStore:
        """Return the manifests, without a cache."""
        return ManifestStore(self.store, root, self.env)

    async def latest(self, root: str = "db") -> Manifest:
        """Return the newest manifest."""
        return (await self.manifests(root).read_latest()).value

    def listing(self, store: MemoryStore | None = None) -> list[str]:
        """Return the keys of all objects."""
        return sorted((store if store is not None else self.store).objects)

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Return all objects below a prefix except manifests, which change when a pin is released."""
        return {
            key: value.data
            for key, value in self.store.objects.items()
            if key.startswith(prefix) and "/manifest/" not in key
        }
