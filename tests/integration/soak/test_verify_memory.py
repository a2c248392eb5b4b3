"""The memory of a verification of a terabyte: 16,000 SSTs of 64 MiB in the manifest, and ten checkpoints of it.

The SSTs are small here, and so are their indexes; how many large ones are read at once follows from their size
(tests/unit/admin/verify/test_healthy.py).
"""

import random
import tracemalloc

import anyio
import pytest

from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.env import Env, InlineCpu, SystemClock
from shale.format.names import sst_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.sst.verify.sst import VerifyDepth
from shale.store.memory import MemoryStore
from shale.types import Entry, Manifest, RunId, Seq, SortedRun, Sst, SstView, Tree, Ulid

SSTS = 16_000
CHECKPOINTS = 10
BOUND_BYTES = 100 * 1024 * 1024

pytestmark = pytest.mark.soak


async def terabyte(env: Env) -> MemoryStore:
    store = MemoryStore()
    views = []
    for number in range(SSTS):
        rows = [Entry(b"user-%09d-%d" % (number, place), b"value" * 4, 1, 0) for place in range(3)]
        data, info = build_sst(rows_from_entries(rows), SstOptions(min_filter_keys=1))
        sst = Sst(id=Ulid.from_parts(1_700_000_000_000 + number, number), info=info)
        await store.put(sst_key("db", sst.id), bytes(data))
        views.append(SstView.identity(sst))
    run = SortedRun(id=RunId(0), ssts=tuple(views))
    stored = await ManifestStore(store, "db", env).create_new(Manifest(tree=Tree(compacted=(run,)), last_l0_seq=Seq(1)))
    for _ in range(CHECKPOINTS):
        await create_checkpoint(stored, env, lifetime_ms=None)
    return store


@pytest.mark.timeout(1200)
def test_a_terabyte() -> None:
    async def main() -> None:
        env = Env(SystemClock(), random.Random(1), InlineCpu())
        store = await terabyte(env)
        tracemalloc.start()
        checked = VerifyTarget(store=store, wal_store=None, root="db", env=env)
        report = await verify_database(checked, VerifyOptions(depth=VerifyDepth.QUICK))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.findings == ()
        assert (report.ssts, report.checkpoints) == (SSTS, CHECKPOINTS)
        print(f"\n{SSTS} SSTs, {CHECKPOINTS} checkpoints: {peak / 2**20:.0f} MiB")
        assert peak < BOUND_BYTES

    anyio.run(main)
