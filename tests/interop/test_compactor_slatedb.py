"""Our compactor and SlateDB 0.17 on one database: I1, I2, I7, I8 and I12 of docs/protocol.md 14.6."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from slatedb import uniffi as slate

from shale.compaction.entries import with_entry
from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.types import Compaction, CompactionStatus, Compression, Manifest, RunId, TieredSpec, Ulid
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.takeover import LiveCoordinator
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.process import Compactor, CompactorOptions
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.interop.slatedb_writes import Shape, flush, open_folder, opened, put_all, scanned, until

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
FAST = CoordinatorOptions(poll_interval_s=0.1, commit_compacted_interval_s=0.05, worker_heartbeat_timeout_s=3)
WORKS = WorkerOptions(compactions_poll_interval_s=0.1, heartbeat_interval_s=1)
S = CompactionStatus

Model = dict[bytes, bytes]


def executor_options(compression: Compression = Compression.NONE) -> ExecutorOptions:
    return ExecutorOptions(
        sst=SstOptions(compression=compression, min_filter_keys=10), max_sst_size_bytes=64 * 1024, max_subcompactions=4
    )


class House:
    """One local directory, seen by both libraries."""

    def __init__(self, folder: Path) -> None:
        self.env = Env.system()
        self.rust = open_folder(folder)
        self.store: ObjectStore = connect(f"file://{folder}", self.env)
        self.manifests = ManifestStore(self.store, ROOT, self.env)
        self.compactions = CompactionsStore(self.store, ROOT, self.env)
        self.rng = random.Random(7)
        self.model: Model = {}

    def next_rows(self, count: int = 400) -> list[tuple[bytes, bytes | None]]:
        """Puts, overwrites and deletes, noted in the model."""
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

    async def manifest(self) -> Manifest:
        return (await self.manifests.read_latest()).value

    async def settled(self) -> bool:
        """Few L0s are left and nothing is under way."""
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
            assert {row[0]: row[1] for row in await scanned(db)} == self.model


def run(test: Callable[[House], Awaitable[None]], tmp_path: Path) -> None:
    async def main() -> None:
        house = House(tmp_path)
        try:
            await test(house)
        finally:
            await house.store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("compression", list(Compression))
def test_slatedb_writes_and_we_compact(tmp_path, compression):
    """I1: it writes on while we compact, with every codec, and reads every row afterwards."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            async with house.compacting(compression):
                for _ in range(12):
                    await put_all(db, house.next_rows())
                    await flush(db)
                await until(house.settled)
                assert {row[0]: row[1] for row in await scanned(db)} == house.model
            await put_all(db, house.next_rows())
        manifest = await house.manifest()
        assert manifest.tree.compacted
        assert any(len(run.ssts) > 1 for run in manifest.tree.compacted), "outputs were rolled over"
        await house.assert_rust_reads_everything()

    run(test, tmp_path)


def test_both_compactors_take_turns(tmp_path):
    """I2: ten rounds, our writer and its compactor, then its writer and our compactor."""

    async def test(house: House) -> None:
        for round_ in range(10):
            rows = [house.next_rows(200) for _ in range(5)]
            if round_ % 2:
                async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
                    for batch in rows:
                        await put_all(db, batch)
                        await flush(db)
                    await until(house.settled)
            else:
                async with Db.open(ROOT, store=house.store, env=house.env) as db:
                    async with house.compacting():
                        for batch in rows:
                            async with db.batch() as b:
                                for key, value in batch:
                                    b.delete(key) if value is None else b.put(key, value)
                            await db.flush(FlushType.MEMTABLE)
                        await until(house.settled)
                    assert {row.key: row.value async for row in db.scan()} == house.model
        await house.assert_rust_reads_everything()
        stored = (await house.compactions.read_latest()).value
        assert len([entry for entry in stored.entries if not entry.is_active]) == 1

    run(test, tmp_path)


async def submit(house: House, spec: TieredSpec) -> Ulid:
    entry = Compaction(id=house.env.ids.ulid(), spec=spec)
    await (await house.compactions.load()).apply(lambda current: with_entry(current.value, entry))
    return entry.id


async def status_of(house: House, job: Ulid) -> CompactionStatus | None:
    entry = (await house.compactions.read_latest()).value.get(job)
    return entry.status if entry is not None else None


def test_its_coordinator_runs_what_we_submit(tmp_path):
    """I7."""

    async def test(house: House) -> None:
        calm = {**RUST_COMPACTS, "scheduler_options": {"min_compaction_sources": "50", "max_compaction_sources": "50"}}
        async with opened(house.rust, ROOT, Shape({"compactor_options": calm})) as db:
            for _ in range(3):
                await put_all(db, house.next_rows())
                await flush(db)
            tree = (await house.manifest()).tree
            job = await submit(house, TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(0)))

            async def is_done() -> bool:
                return await status_of(house, job) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == house.model

    run(test, tmp_path)


def test_our_worker_serves_its_coordinator(tmp_path):
    """I8: claims, results, and the reclaim of a job whose worker died."""

    async def test(house: House) -> None:
        alone = {**RUST_COMPACTS, "worker": None}
        executor = Executor(house.store, ROOT, house.env, executor_options())

        def worker() -> Worker:
            return Worker(house.manifests, house.compactions, executor, house.env, WORKS)

        async with opened(house.rust, ROOT, Shape({"compactor_options": alone})) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)

            async def is_scheduled() -> bool:
                stored = await house.compactions.try_read_latest()
                return stored is not None and any(entry.status is S.SCHEDULED for entry in stored.value.entries)

            await until(is_scheduled)
            dead = worker()
            (lost,) = await dead.claim()
            assert await status_of(house, lost.plan.id) is S.RUNNING
            await until(is_scheduled)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker().run)

                async def is_done() -> bool:
                    return await status_of(house, lost.plan.id) is S.COMPLETED

                await until(is_done)
                assert {row[0]: row[1] for row in await scanned(db)} == house.model
                tasks.cancel_scope.cancel()

    run(test, tmp_path)


def test_its_worker_goes_on_behind_what_ours_published(tmp_path):
    """Our worker dies with two SSTs in the job's context; SlateDB reclaims the job and resumes from them."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            for _ in range(4):
                await put_all(db, house.next_rows(700))
                await flush(db)
        compactor = house.compactor(take_over=True, embedded_worker=False)
        await compactor.start()
        await compactor.coordinator.tick()
        options = ExecutorOptions(
            sst=SstOptions(block_size_bytes=512), max_sst_size_bytes=8 * 1024, max_subcompactions=1
        )
        executor = Executor(house.store, ROOT, house.env, options)
        dead = Worker(house.manifests, house.compactions, executor, house.env, WORKS)
        (job,) = await dead.claim()
        with anyio.CancelScope() as scope:
            job.progress._on_sst = lambda _: scope.cancel() if len(job.progress.outputs()) == 2 else None
            await executor.run(job.plan, job.progress)
        published = [sst.id for sst in job.progress.outputs()]
        await dead.beat()

        async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:

            async def is_done() -> bool:
                return await status_of(house, job.plan.id) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == house.model
        (run_,) = (await house.manifest()).tree.compacted
        assert [view.sst.id for view in run_.ssts][: len(published)] == published
        assert len(run_.ssts) > len(published)

    run(test, tmp_path)


def test_taking_over_closes_a_writer_with_its_own_coordinator(tmp_path):
    """I12: so we refuse while it is alive, unless told otherwise."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            await until(house.settled)
            with pytest.raises(LiveCoordinator):
                await house.compactor().start()
            async with house.compacting():

                async def is_closed() -> bool:
                    try:
                        await db.get(b"k")
                    except slate.Error.Closed as error:
                        return error.reason is slate.CloseReason.FENCED
                    return False

                await until(is_closed)
        await house.assert_rust_reads_everything()

    run(test, tmp_path)


def test_a_database_of_both_is_read_alike_by_both(tmp_path):
    """Compactions that we wrote decode in SlateDB with the same fields."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            async with house.compacting():
                await until(house.settled)
        admin = slate.AdminBuilder(ROOT, house.rust).build()
        theirs = await admin.read_compactions(None)
        ours = (await house.compactions.read_latest()).value
        assert theirs.compactor_epoch == ours.compactor_epoch
        assert [str(compaction.id) for compaction in theirs.recent_compactions] == [str(e.id) for e in ours.entries]

    run(test, tmp_path)
