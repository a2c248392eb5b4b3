"""SlateDB and a Shale compactor on one local directory, for the interop tests of compaction."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from slatedb import uniffi as slate

from shale.compaction.entries import with_entry
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.types import Compaction, CompactionStatus, Compression, Manifest, TieredSpec, Ulid
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all, scanned

if TYPE_CHECKING:
    from shale.store.port import ObjectStore

ROOT = "db"
RUST_COMPACTS = {
    "poll_interval": "100ms",
    "manifest_update_timeout": "300s",
    "max_concurrent_compactions": 4,
    "commit_compacted_interval": "100ms",
    "worker_heartbeat_timeout": "3s",
    "worker": {
        "max_concurrent_compactions": 4,
        "compactions_poll_interval": "100ms",
        "heartbeat_interval": "1s",
        "max_sst_size": 1 << 20,
        "max_fetch_tasks": 4,
        "bytes_to_fetch": 1 << 20,
        "max_subcompactions": 4,
        "min_filter_keys": 1000,
    },
}
CALM = {
    **RUST_COMPACTS,
    "scheduler_options": {"min_compaction_sources": "50", "max_compaction_sources": "50"},
}
"""A coordinator of SlateDB that proposes nothing by itself."""
FAST = CoordinatorOptions(poll_interval_s=0.1, commit_compacted_interval_s=0.05, worker_heartbeat_timeout_s=3)
WORKS = WorkerOptions(compactions_poll_interval_s=0.1, heartbeat_interval_s=1)
Model = dict[bytes, bytes]


def executor_options(compression: Compression = Compression.NONE) -> ExecutorOptions:
    return ExecutorOptions(
        sst=SstOptions(compression=compression, min_filter_keys=10), max_sst_size_bytes=64 * 1024, max_subcompactions=4
    )


class Harness:
    """One local directory that both libraries open."""

    def __init__(self, folder: Path, root: str = ROOT) -> None:
        self.root = root
        self.env = Env.system()
        self.rust = open_folder(folder)
        self.store: ObjectStore = connect(f"file://{folder}", self.env)
        self.manifests = ManifestStore(self.store, root, self.env)
        self.compactions = CompactionsStore(self.store, root, self.env)
        self.rng = random.Random(7)
        self.model: Model = {}

    def next_rows(self, count: int = 400) -> list[tuple[bytes, bytes | None]]:
        """Return puts, overwrites and deletes, and record them in the model."""
        rows: dict[bytes, bytes | None] = {}
        for _ in range(count):
            key = b"key%05d" % self.rng.randrange(1500)
            rows[key] = None if self.rng.random() < 0.2 else self.rng.randbytes(60)
        for key, value in rows.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value
        return list(rows.items())

    async def flush_l0s(self, db: slate.Db, count: int, *, row_count: int = 400) -> None:
        """Write and flush some rows for each L0."""
        for _ in range(count):
            await put_all(db, self.next_rows(row_count))
            await flush(db)

    async def manifest(self) -> Manifest:
        return (await self.manifests.read_latest()).value

    async def settled(self) -> bool:
        """Return whether few L0s are left and no job is active."""
        stored = await self.compactions.try_read_latest()
        active = stored is not None and any(entry.is_active for entry in stored.value.entries)
        return not active and len((await self.manifest()).tree.l0) < 4

    def compactor(self, compression: Compression = Compression.NONE, **options: bool) -> Compactor:
        executor = executor_options(compression)
        return Compactor(
            self.store, ROOT, self.env, CompactorOptions(coordinator=FAST, worker=WORKS, executor=executor, **options)
        )

    @asynccontextmanager
    async def compacting(self, compression: Compression = Compression.NONE) -> AsyncIterator[Compactor]:
        compactor = self.compactor(compression, take_over=True)
        await compactor.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compactor.run)
            yield compactor
            tasks.cancel_scope.cancel()

    async def assert_rust_reads_everything(self) -> None:
        async with opened(self.rust, ROOT, Shape()) as db:
            rows = await scanned(db)
        assert len(rows) == len(self.model)
        assert {row[0]: row[1] for row in rows} == self.model

    async def assert_we_read_everything(self) -> None:
        async with DbReader.open(ROOT, store=self.store, env=self.env) as reader:
            rows = [(row.key, row.value) async for row in reader.scan()]
        assert len(rows) == len(self.model)
        assert dict(rows) == self.model

    async def assert_all_read_everything(self) -> None:
        """Check that both readers return the same rows, each once."""
        await self.assert_we_read_everything()
        await self.assert_rust_reads_everything()


def run(test: Callable[[Harness], Awaitable[None]], tmp_path: Path, root: str = ROOT) -> None:
    async def main() -> None:
        harness = Harness(tmp_path, root)
        try:
            await test(harness)
        finally:
            await harness.store.aclose()

    asyncio.run(main())


async def submit(harness: Harness, spec: TieredSpec) -> Ulid:
    entry = Compaction(id=harness.env.ids.ulid(), spec=spec)
    await (await harness.compactions.load()).apply(lambda current: with_entry(current.value, entry))
    return entry.id


async def status_of(harness: Harness, job: Ulid) -> CompactionStatus | None:
    entry = (await harness.compactions.read_latest()).value.get(job)
    return entry.status if entry is not None else None
