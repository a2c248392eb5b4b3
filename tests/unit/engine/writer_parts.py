"""The parts of a writer, created separately: a claimed manifest in memory, and a listener that records its calls."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.options import DbOptions
from shale.engine.wal.flusher import WalFlusher
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.env import Env
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.protocol.wal_store import WalStore
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


async def make_parts(
    *, new: Manifest | None = None, durability: DurabilityTracker | None = None, **options: Any
) -> Parts:
    """Claim a new database at the path ``db``, with the manifest ``new``, and make its write pipeline."""
    store, env, chosen = MemoryStore(), Env.system(), DbOptions(**options)
    created = await ManifestStore(store, "db", env, Metrics()).create_new(new or Manifest())
    fenceable = await FenceableManifest.claim(created, WRITER)
    manifest = WriterManifest(fenceable, env, lambda: None)
    listener = RecordingListener()
    if durability is None:
        durability = DurabilityTracker(0, 1)
    pipeline = WritePipeline(chosen, env, manifest, durability, operator=None, listener=listener)
    return Parts(store, env, chosen, manifest, durability, listener, pipeline)


F = TypeVar("F", bound=WalFlusher)


def make_flusher(kind: type[F], parts: Parts, store: WalStore) -> F:
    """Return a WAL flusher of these parts."""
    options, env, instruments = parts.options, parts.env, WriterInstruments(Metrics())
    return kind(
        store, parts.pipeline, parts.manifest, parts.durability, options=options, env=env, instruments=instruments
    )
