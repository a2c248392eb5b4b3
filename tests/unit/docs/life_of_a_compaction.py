"""The scenario of ``docs/concepts/life-of-a-compaction.md``: four L0s become one sorted run."""

import anyio

import shale
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.transforms import Transforms
from tests.unit.docs.call_order import Recording


async def run(recording: Recording) -> None:
    env = Env.system()
    store = MemoryStore(env.clock)
    async with shale.Db.open("db", store=store, flush_interval=0) as db:
        for number in range(4):
            await db.put(b"key %d" % number, b"value")
            await db.flush("memtable")
    options = CompactorOptions(coordinator=CoordinatorOptions(commit_compacted_interval_s=0.02))
    # Jobs that refuse operands always merge rows, whether or not kernels are loaded.
    compactor = Compactor(store, "db", env, options, transforms=Transforms(merge_passthrough=False))
    await compactor.start()
    manifests = ManifestStore(store, "db", env)
    with recording():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compactor.run)
            while not await _is_completed(manifests, compactor):  # noqa: ASYNC110 - the state is in a store
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def _is_completed(manifests: ManifestStore, compactor: Compactor) -> bool:
    latest = await manifests.read_latest()
    return bool(latest.value.tree.compacted) and not compactor.coordinator.view.has_active
