"""A database in memory, a clock, and collectors of the database."""

from typing import Any
from uuid import UUID

import anyio

from shale.env import Env, InlineCpu
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import (
    Checkpoint,
    Manifest,
    ManifestId,
)
from tests.clocks import ManualClock
from tests.unit.protocol.draws import Draws

AGE_S = 100
YOUNG = TaskOptions(min_age_s=AGE_S)
OPTIONS = GcOptions(
    manifest=YOUNG, wal=YOUNG, compacted=YOUNG, compactions=YOUNG, wal_fence=TaskOptions(min_age_s=7 * 86_400)
)


class World:
    """A store with a database at ``db``, a clock, and collectors of the database."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock) if store is None else store
        self.env = Env(self.clock, Draws(), InlineCpu())
        self.metrics = Metrics()
        self.manifests = ManifestStore(self.store, "db", self.env)

    async def write(self, *manifests: Manifest) -> None:
        """Append manifests."""
        for manifest in manifests:
            latest = await self.manifests.try_read_latest()
            await self.manifests.commit(None if latest is None else latest.id, manifest)

    def collector(self, options: GcOptions = OPTIONS, **arguments: Any) -> Collector:
        return Collector(self.store, "db", self.env, options, self.metrics, **arguments)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"slatedb_{name}", {"db": "", **labels}) or 0

    def below(self, folder: str) -> list[str]:
        return sorted(key for key in self.store.objects if key.startswith(f"db/{folder}/"))


def checkpoint(id_: int, at: int, *, expire_s: int = 0, name: str | None = None) -> Checkpoint:
    return Checkpoint(id=UUID(int=id_), manifest_id=ManifestId(at), expire_s=expire_s, create_s=1, name=name)


async def with_wal_elsewhere(world: World) -> None:
    """Write a manifest that names the store of the WAL; only version 1 does."""
    world.manifests = ManifestStore(world.store, "db", world.env, options=ProtocolOptions(manifest_write_version=1))
    await world.write(Manifest(wal_object_store_uri="s3://bucket/wal"))


async def until(condition: Any) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.lowlevel.checkpoint()
