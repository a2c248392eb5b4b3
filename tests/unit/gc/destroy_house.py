"""Databases in memory that are going to be destroyed, and what is left of a store."""

import random
from dataclasses import dataclass, field
from typing import Any

import shale
from shale.env import Env, InlineCpu
from shale.garbage.destroy import DestroyTarget
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from tests.unit.protocol.conftest import HandClock

DAY_MS = 86_400_000


@dataclass
class House:
    """A store, a second one for WALs, and a clock in our hands."""

    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.wal_store = MemoryStore(self.clock, url="memory://wal/")
        self.env = Env(self.clock, random.Random(1), InlineCpu())

    def target(self, root: str = "db", *, store: Any = None, wal: bool = False) -> DestroyTarget:
        """The database as one run of a command sees it."""
        return DestroyTarget(
            store=store if store is not None else self.store,
            root=root,
            env=self.env,
            metrics=Metrics(),
            wal_store=self.wal_store if wal else None,
        )

    def open(self, root: str = "db", **settings: Any) -> Any:
        """A writer."""
        return shale.Db.open(root, store=self.store, env=self.env, **settings)

    async def make(self, root: str = "db", **settings: Any) -> None:
        """A database with a row in L0 and another in the WAL."""
        async with self.open(root, **settings) as db:
            await db.put(b"in l0", b"1")
            await db.flush("memtable")
            await db.put(b"in the wal", b"2")
            await db.flush("wal")
            await db.close("wal")

    def manifests(self, root: str = "db") -> ManifestStore:
        """The manifests, without anything remembered."""
        return ManifestStore(self.store, root, self.env)

    async def latest(self, root: str = "db") -> Manifest:
        """The newest one."""
        return (await self.manifests(root).read_latest()).value

    def listing(self, store: MemoryStore | None = None) -> list[str]:
        """The keys of everything that is there."""
        return sorted((store if store is not None else self.store)._objects)

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Everything below a prefix but manifests, which change when a pin goes."""
        return {
            key: value.data
            for key, value in self.store._objects.items()
            if key.startswith(prefix) and "/manifest/" not in key
        }
