"""Lets Shale compact databases of four L0s, each as asked for by an admin, and prints seconds of wall time of each.

Usage: ``python -m tests.bench.compaction.asked DIRECTORY...``.  The time is that from the submission until the admin
sees the result in the manifest, with timers of 100 ms as the other libraries' have.
"""

import asyncio
import sys
from pathlib import Path
from time import perf_counter

import anyio

from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import Sources
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.bench.compaction.load import ROOT

_POLL_S = 0.1


async def compact(directory: Path) -> float:
    """Return the seconds of one compaction of everything."""
    env = Env.system()
    store = connect(f"file://{directory}", env)
    options = CompactorOptions(
        coordinator=CoordinatorOptions(poll_interval_s=_POLL_S, commit_compacted_interval_s=_POLL_S),
        worker=WorkerOptions(compactions_poll_interval_s=_POLL_S),
    )
    compactor = Compactor(store, ROOT, env, options)
    await compactor.start()
    admin = CompactionAdmin(store, ROOT, env)
    latest = await ManifestStore(store, ROOT, env).try_read_latest()
    assert latest is not None
    l0s = tuple(view.id for view in latest.value.tree.l0)
    async with anyio.create_task_group() as tasks:
        start = perf_counter()
        # Before the coordinator runs, which would choose the same L0s itself.
        (job,) = await admin.submit(Sources(l0_view_ids=l0s))
        tasks.start_soon(compactor.run)
        assert (await admin.wait(job.id, poll_interval_s=_POLL_S)).error is None
        seconds = perf_counter() - start
        tasks.cancel_scope.cancel()
    await store.aclose()
    return seconds


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(asyncio.run(compact(Path(name))))
