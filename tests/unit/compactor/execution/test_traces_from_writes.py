"""The traces of docs/reference/protocol.md 7.6, written with a ``Db``, flushed and compacted, with a snapshot open."""

import random
from dataclasses import replace

import pytest

import shale
from shale.env import Clock, Env, InlineCpu
from shale.merge_operators import concatenate
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.types import FLAG_CREATE_TS, FLAG_MERGE, Entry, RunId, SortedRun
from shale.types import TieredSpec as Spec
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import Transforms
from tests.unit.compactor.ssts import read_ssts
from tests.unit.compactor.values import entry
from tests.unit.iter.traces import TRACES, row

pytestmark = pytest.mark.anyio
TICK = 10
OPTIONS = ExecutorOptions(sst=SstOptions(block_size_bytes=256), max_sst_size_bytes=2048, max_subcompactions=1)
WRITABLE = [trace for trace in TRACES if not any(text.startswith("D") and "!" in text for text in trace[0].split())]


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TickClock(Clock):
    """A clock that always shows the tick at which the traces decide about expiry."""

    def now_ms(self) -> int:
        return TICK

    def monotonic_s(self) -> float:
        return 0.0


ENV = Env(TickClock(), random.Random(1), InlineCpu())


async def write(db: shale.Db, each: Entry) -> None:
    batch = shale.WriteBatch()
    lifetime = {"expire_at": each.expire_ts} if each.expire_ts else {}
    if each.is_tombstone:
        batch.delete(b"k")
    elif each.is_merge:
        batch.merge(b"k", each.value, **lifetime)
    else:
        batch.put(b"k", each.value, **lifetime)
    await db.write(batch, seq=each.seq)


def visible(rows: list[Entry], seq: int) -> bytes | None:
    """Return the versions of the key that a snapshot shows."""
    value: bytes | None = None
    for each in reversed(rows):
        if each.seq <= seq:
            value = None if each.is_tombstone else (value or b"") + each.value if each.is_merge else each.value
    return value


def shown(rows: list[Entry]) -> list[tuple[bytes, int, int, int]]:
    """Return rows as the traces write them, which do not show whether a folded row is a value or an operand."""
    return [(each.value, each.seq, each.flags & ~(FLAG_CREATE_TS | FLAG_MERGE), each.expire_ts) for each in rows]


@pytest.mark.parametrize("how", ["in one flush", "one by one", "flushed with the value below"])
@pytest.mark.parametrize(("written", "min_seq", "drop", "expected"), WRITABLE)
async def test_compacted_rows_equal_those_of_the_trace(
    written: str, min_seq: int | None, drop: bool, expected: str, how: str
) -> None:
    store, rows = MemoryStore(), [row(text) for text in written.split()]
    settings = {"flush_interval": 0, "merge_operator": concatenate}
    async with shale.Db.open("db", store=store, env=ENV, **settings) as db:
        snapshot = None
        for number, each in enumerate(reversed(rows)):
            if snapshot is None and min_seq is not None and each.seq > min_seq:
                snapshot = await keep(db, min_seq)
            await write(db, each)
            if how == "one by one" or (how != "in one flush" and number == 1):
                await flush(db)
        if snapshot is None and min_seq is not None and min_seq <= rows[0].seq:
            snapshot = await keep(db, min_seq)
        await flush(db)
        outputs = await compacted(store, db, drop=drop)
        assert shown(outputs) == shown([row(text) for text in expected.split()])
        if snapshot is not None:
            lives = all(each.expire_ts == 0 or each.expire_ts > TICK for each in rows)
            assert await snapshot.get(b"k") == visible(rows, snapshot.seq) or not lives
            assert (
                [each.value async for each in snapshot.scan()] == [value]
                if (value := await snapshot.get(b"k")) is not None
                else True
            )


async def keep(db: shale.Db, min_seq: int) -> shale.Snapshot:
    """Return a snapshot that holds ``min_seq``, which may be a number without a write."""
    snapshot = await db.snapshot()
    if snapshot.seq < min_seq:
        snapshot._held = db._writer.active.hold(min_seq)
    return snapshot


async def flush(db: shale.Db) -> None:
    await db.flush("wal")
    await db.flush("memtable")


async def compacted(store: MemoryStore, db: shale.Db, *, drop: bool) -> list[Entry]:
    """Return the rows after a compaction of all L0s, with the barrier of the manifest."""
    tree = db.status.manifest.tree
    if not tree.l0:
        return []
    older = () if drop else (SortedRun(id=RunId(0), ssts=()),)
    spec = Spec(l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=(), destination=RunId(1))
    manifest = replace(db.status.manifest, tree=replace(tree, compacted=older))
    executor = Executor(
        store, "db", ENV, OPTIONS, transforms=Transforms(operator=concatenate, operator_name="concatenate")
    )
    progress = JobProgress(retention_min_seq=manifest.recent_snapshot_min_seq)
    outputs = await executor.run(plan_job(entry(500, spec), manifest), progress)
    return await read_ssts(store, "db", ENV, outputs)
