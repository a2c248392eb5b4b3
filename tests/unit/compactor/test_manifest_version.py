"""A compaction of all L0s beside a writer, with manifests of version 1, 2, or both."""

import anyio
import pytest

import shale
from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import Sources
from shale.compaction.status import Phase
from shale.engine.options import FlushType
from shale.env import Env
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.types import ManifestVersion
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.worker.options import WorkerOptions

pytestmark = pytest.mark.anyio
QUICK_S = 0.01


async def compact_all_l0(store: MemoryStore, version: ManifestVersion, db: shale.Db) -> None:
    """Compact every L0 of a running writer to one run."""
    env = Env.system()
    options = CompactorOptions(
        coordinator=CoordinatorOptions(poll_interval_s=QUICK_S, commit_compacted_interval_s=QUICK_S),
        worker=WorkerOptions(compactions_poll_interval_s=QUICK_S),
        protocol=ProtocolOptions(component="compactor", manifest_write_version=version),
    )
    compactor = Compactor(store, "db", env, options)
    await compactor.start()
    admin = CompactionAdmin(store, "db", env)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        with anyio.fail_after(60):
            l0 = tuple(view.id for view in db.status.manifest.tree.l0)
            (submitted,) = await admin.submit(Sources(l0_view_ids=l0))
            assert (await admin.wait(submitted.id, poll_interval_s=QUICK_S)).phase is Phase.COMPLETED
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("compactor", [1, 2])
@pytest.mark.parametrize("writer", [1, 2])
async def test_compacted_l0s_do_not_come_back(writer: ManifestVersion, compactor: ManifestVersion) -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, manifest_write_version=writer) as db:
        for number in range(3):
            await db.put(b"%d" % number, b"old")
            await db.flush(FlushType.MEMTABLE)
        newest = db.status.manifest.tree.l0[0].id
        await compact_all_l0(store, compactor, db)
        for number in range(2):
            await db.put(b"%d" % number, b"new")
            await db.flush(FlushType.MEMTABLE)
        tree = db.status.manifest.tree
        assert (len(tree.l0), len(tree.compacted)) == (2, 1)
        assert tree.last_compacted_l0_sst_view_id == newest
    async with shale.Db.open("db", store=store, manifest_write_version=writer) as db:
        assert [row.value async for row in db.scan()] == [b"new", b"new", b"old"]
