"""The sources of a merge, each of which holds a block in memory."""

import random

import anyio
import pytest

from shale.concurrency.read_ahead import ReadAhead
from shale.env import Env, InlineCpu, SystemClock
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.memory import MemoryStore
from shale.types import EVERYTHING, Manifest, RunId, Seq, Tree
from shale.types import TieredSpec as Spec
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.inputs import JobInputs
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from tests.unit.compactor.ssts import put, read_ssts, write_view
from tests.unit.compactor.values import entry, ulid

pytestmark = pytest.mark.anyio
ENV = Env(SystemClock(), random.Random(1), InlineCpu())


@pytest.fixture
def anyio_backend():
    return "asyncio"


def key(index):
    return b"key%06d" % index


async def l0_job(store, l0):
    """Return a job over L0s, oldest first."""
    views = [await write_view(store, "db", ulid(100 + i), rows) for i, rows in enumerate(l0)]
    tree = Tree(l0=tuple(views[::-1]))
    spec = Spec(l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=(), destination=RunId(1))
    return plan_job(entry(500, spec), Manifest(tree=tree))


async def test_l0s_with_disjoint_keys_are_read_one_after_the_other():
    """Each may be one large value, and a merge holds a block of each of its sources."""
    store = MemoryStore()
    rows = [[put(key(source), source + 1, bytes(4096))] for source in range(6)]
    job = await l0_job(store, [*rows, [put(key(0), 9), put(key(5), 9)], [put(key(9), 10)]])
    async with anyio.create_task_group() as tasks:
        reader = SstReader(store, SstPaths("db"), BlockCache(), ENV)
        inputs = JobInputs(job, reader, ReadAhead(tasks))
        assert inputs.source_count == 2
        assert len(inputs.blocks(EVERYTHING, 1 << 20)) == len(inputs.rows(EVERYTHING, 1 << 20)) == 2
    written = await read_ssts(
        store,
        "db",
        ENV,
        await Executor(store, "db", ENV, ExecutorOptions()).run(job, JobProgress(retention_min_seq=Seq(2**40))),
    )
    assert [(row.key, row.seq) for row in written] == [
        (key(0), 9),
        *((key(source), source + 1) for source in range(1, 5)),
        (key(5), 9),
        (key(9), 10),
    ]


@pytest.mark.parametrize("value_bytes", [3 << 20, 1 << 10])
async def test_large_values_are_not_read_ahead(value_bytes):
    store = MemoryStore()
    job = await l0_job(store, [[put(key(i), i + 1, bytes(value_bytes)) for i in range(8)]])
    async with anyio.create_task_group() as tasks:
        reader = SstReader(store, SstPaths("db"), BlockCache(), ENV)
        (source,) = JobInputs(job, reader, ReadAhead(tasks)).blocks(EVERYTHING, 2 << 10)
        await source.next()
        await anyio.wait_all_tasks_blocked()
        assert source.is_ready is (value_bytes == 1 << 10)
