"""The parts of a writer, created separately: a claimed manifest in memory, and a listener that records its calls."""

from dataclasses import dataclass, field
from typing import Any

from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.options import DbOptions
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.pipeline import WritePipeline
from shale.env import Env
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest


@dataclass
class RecordingListener:
    """A ``WriteListener`` that records the names of its calls."""

    calls: list[str] = field(default_factory=list)

    async def durable(self, seq: int) -> None:
        self.calls.append(f"durable {seq}")

    def on_rows_pending(self) -> None:
        self.calls.append("rows pending")

    def on_wal_file_pending(self) -> None:
        self.calls.append("wal file pending")

    def on_wal_flush_requested(self) -> None:
        self.calls.append("wal flush requested")

    def on_memtable_frozen(self) -> None:
        self.calls.append("memtable frozen")

    def on_memtables_changed(self) -> None:
        self.calls.append("memtables changed")


@dataclass
class Parts:
    """A pipeline and the parts that it uses."""

    store: MemoryStore
    env: Env
    options: DbOptions
    manifest: WriterManifest
    durability: DurabilityTracker
    listener: RecordingListener
    pipeline: WritePipeline


async def make_parts(**options: Any) -> Parts:
    """Claim a new database at the path ``db`` and make its write pipeline."""
    store, env, chosen = MemoryStore(), Env.system(), DbOptions(**options)
    created = await ManifestStore(store, "db", env, Metrics()).create_new(Manifest())
    fenceable = await FenceableManifest.claim(created, WRITER)
    manifest = WriterManifest(fenceable, env, lambda: None)
    durability, listener = DurabilityTracker(0, 1), RecordingListener()
    pipeline = WritePipeline(chosen, env, manifest, durability, operator=None, listener=listener)
    return Parts(store, env, chosen, manifest, durability, listener, pipeline)
