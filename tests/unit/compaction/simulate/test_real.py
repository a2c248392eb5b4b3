"""The simulator against the engine: the same load on a small database, with real rows, files and jobs."""

import hashlib
import math
import random

import anyio
import pytest

import shale
from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.simulate.compactor_model import CompactorModel
from shale.compaction.simulate.simulation import simulate
from shale.compaction.simulate.workload import Workload
from shale.env import Env
from shale.store.memory import MemoryStore
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions

FLUSHES, OPERATIONS = 40, 400
OVERWRITES, DELETES = 0.4, 0.1


class Measured:
    """Bytes of the L0s, bytes of all SSTs ever written, and the number of jobs."""

    def __init__(self) -> None:
        self.flushed = self.written = self.jobs = 0


async def on_a_real_database(policy) -> Measured:
    store, measured, rng = MemoryStore(), Measured(), random.Random(7)
    options = CompactorOptions(coordinator=CoordinatorOptions(scheduler=policy), take_over=True)
    async with shale.Db.open("db", store=store, flush_interval=0, l0_max_ssts=100) as db:
        compactor = Compactor(store, "db", Env.system(), options)
        await compactor.start()
        keys = 0
        for _ in range(FLUSHES):
            async with db.batch() as batch:
                for _ in range(OPERATIONS):
                    dice = rng.random()
                    if keys and dice < DELETES:
                        batch.delete(key(rng.randrange(keys)))
                    elif keys and dice < DELETES + OVERWRITES:
                        batch.put(key(rng.randrange(keys)), rng.randbytes(100))
                    else:
                        batch.put(key(keys), rng.randbytes(100))
                        keys += 1
            await db.flush("memtable")
            measured.flushed += db.status.manifest.tree.l0[0].sst.estimated_size_bytes
            measured.jobs += await compact_to_rest(compactor)
    measured.written = sum(each.size for each in await store.list("db/compacted/"))
    return measured


def key(number: int) -> bytes:
    """Return sixteen bytes without a common prefix, so that blocks cannot share prefixes."""
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).digest()


async def compact_to_rest(compactor: Compactor) -> int:
    jobs = 0
    await compactor.coordinator.run_round()
    while claimed := await compactor.worker.claim():
        for job in claimed:
            await compactor.worker.execute(job)
            jobs += 1
        await compactor.coordinator.run_round()
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(SizeTiered(), id="size-tiered"),
        pytest.param(Leveled(level_base_bytes=250_000, level_size_multiplier=4.0), id="leveled"),
    ],
)
def test_the_simulator_tells_what_the_engine_does(policy):
    """Within 3 % for bytes and jobs; simulated L0s arrive every ten seconds, so that each finds the database idle."""
    real = anyio.run(on_a_real_database, policy)
    row_bytes = Workload().row_bytes
    load = Workload(
        l0_bytes=round(OPERATIONS * row_bytes),
        rate_bytes_s=OPERATIONS * row_bytes / 10,
        duration_s=FLUSHES * 10 + 9,
        overwrite_share=OVERWRITES,
        delete_share=DELETES,
        seed=7,
    )
    simulated = simulate("real", policy, load, CompactorModel(throughput_bytes_s=math.inf))
    assert simulated.flushed_bytes == pytest.approx(real.flushed, rel=0.03)
    assert simulated.flushed_bytes + simulated.compacted_bytes == pytest.approx(real.written, rel=0.03)
    assert simulated.jobs == pytest.approx(real.jobs, abs=1)
