"""The executor on real SSTs: retention, cuts and resumption (docs/reference/protocol.md 6.11)."""

import asyncio
import itertools
import random
import threading
import zlib
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from shale import CompactionFilter, Decisions
from shale.compaction.filters import NamedCompactionFilter
from shale.concurrency.read_ahead import ReadAhead
from shale.crypto.aes_gcm import AesGcm
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import (
    CompactionFilterFailed,
    CorruptionError,
    MergeOperatorMissing,
    UnavailableError,
)
from shale.format.blocks.section import open_section
from shale.format.names import sst_key
from shale.format.sst.index import decode_index
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import (
    EVERYTHING,
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    CompactionContext,
    Compression,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Subcompaction,
    Tree,
)
from shale.types import TieredSpec as Spec
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.inputs import JobInputs
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import Transforms
from tests.unit.compactor.ssts import delete, put, read_ssts, write_view
from tests.unit.compactor.values import entry, ulid

pytestmark = pytest.mark.anyio
ENV = Env(SystemClock(), random.Random(1), InlineCpu())
SMALL = ExecutorOptions(sst=SstOptions(block_size_bytes=256), max_sst_size_bytes=2048, max_subcompactions=1)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def key(index):
    return b"key%06d" % index


async def job_of(store, l0, runs=(), *, last_run=True, tick=0):
    """Return a job over L0s and runs (oldest first), without run 0 if the job has not the last run."""
    views = [await write_view(store, "db", ulid(100 + i), rows, block_size_bytes=256) for i, rows in enumerate(l0)]
    older = () if last_run else (SortedRun(id=RunId(0), ssts=()),)
    made = [
        SortedRun(id=RunId(1 + i), ssts=(await write_view(store, "db", ulid(50 + i), rows, block_size_bytes=256),))
        for i, rows in enumerate(runs)
    ]
    tree = Tree(l0=tuple(views[::-1]), compacted=(*made[::-1], *older))
    spec = Spec(
        l0_view_ids=tuple(view.id for view in tree.l0),
        sorted_runs=tuple(run.id for run in made[::-1]),
        destination=made[0].id if made else RunId(1),
    )
    return plan_job(entry(500, spec), Manifest(tree=tree, last_l0_clock_tick=tick))


async def run(store, job, options=SMALL, progress=None, min_seq=2**40):
    progress = progress or JobProgress(retention_min_seq=Seq(min_seq))
    return await Executor(store, "db", ENV, options).run(job, progress)


async def test_newest_versions_survive_and_order_is_by_key():
    store = MemoryStore()
    old, new = [put(key(i), i + 1, b"old") for i in range(50)], [put(key(i), 100 + i, b"new") for i in range(0, 50, 2)]
    job = await job_of(store, [old, new])
    outputs = await run(store, job)
    entries = await read_ssts(store, "db", ENV, outputs)
    assert [(e.key, e.value) for e in entries] == [(key(i), b"old" if i % 2 else b"new") for i in range(50)]


@pytest.mark.fault("F4.18")
@pytest.mark.parametrize(("last_run", "left"), [(True, []), (False, [key(1)])])
async def test_tombstones_go_only_where_nothing_older_exists(last_run, left):
    store = MemoryStore()
    job = await job_of(store, [[put(key(1), 1)], [delete(key(1), 2)]], last_run=last_run)
    assert [e.key for e in await read_ssts(store, "db", ENV, await run(store, job))] == left


@pytest.mark.fault("F4.19")
@pytest.mark.parametrize("rows", [1, 20_000])
async def test_rows_that_expired_are_counted(rows):
    """``expire_ts == tick`` is expired."""
    store = MemoryStore()
    l0 = [Entry(key(i), b"v", i + 1, FLAG_EXPIRE_TS, 0, 10 + i % 2) for i in range(rows)]
    operand = Entry(b"m", b"x", 1, FLAG_EXPIRE_TS | FLAG_MERGE, 0, 10)
    job = await job_of(store, [[*l0, operand]], last_run=False, tick=10)
    metrics = Metrics()
    outputs = await Executor(store, "db", ENV, SMALL, metrics=metrics).run(
        job, JobProgress(retention_min_seq=Seq(2**40))
    )
    entries = await read_ssts(store, "db", ENV, outputs)
    assert [e.is_tombstone for e in entries] == [i % 2 == 0 for i in range(rows)]
    name = "slatedb_compactor_expired_entries_total"
    assert metrics.registry.get_sample_value(name, {"db": "", "entry_type": "value"}) == (rows + 1) // 2
    assert metrics.registry.get_sample_value(name, {"db": "", "entry_type": "merge"}) == 1


@pytest.mark.parametrize("rows", [40, 4000])
async def test_what_is_read_adds_up_to_the_estimate_of_the_inputs(rows):
    """Progress is measured against the inputs, independent of how few rows are written."""
    store = MemoryStore()
    old, new = [put(key(i), i + 1, b"old") for i in range(rows)], [delete(key(i), rows + i + 1) for i in range(rows)]
    job = await job_of(store, [old, new])
    read = []
    progress = JobProgress(retention_min_seq=Seq(2**40), on_read=read.append)
    assert await run(store, job, progress=progress) == ()
    assert sum(read) == progress.read_bytes == pytest.approx(job.input_bytes, rel=0.15)


async def test_a_result_without_rows_has_no_sst():
    store = MemoryStore()
    job = await job_of(store, [[delete(key(1), 1)]])
    assert await run(store, job) == ()
    assert len(await store.list("db/compacted/")) == 1


async def test_runs_without_ssts_become_one():
    """A merge without remaining rows leaves such a run, which later merges accept."""
    tree = Tree(compacted=tuple(SortedRun(id=RunId(number), ssts=()) for number in (2, 1)))
    spec = Spec(sorted_runs=(RunId(2), RunId(1)), destination=RunId(1))
    assert await run(MemoryStore(), plan_job(entry(500, spec), Manifest(tree=tree))) == ()


async def test_versions_that_a_snapshot_needs_survive():
    store = MemoryStore()
    job = await job_of(store, [[put(key(1), seq) for seq in (1, 2, 5, 9)]])
    assert [e.seq for e in await read_ssts(store, "db", ENV, await run(store, job, min_seq=5))] == [9, 5]


async def test_outputs_are_cut_between_keys():
    """One key has more versions than fit into an SST; all of them stay in one SST."""
    store = MemoryStore()
    rows = [put(key(i), i + 1, bytes(40)) for i in range(200)]
    rows += [put(key(77), 1000 + seq, bytes(40)) for seq in range(200)]
    outputs = await run(store, await job_of(store, [rows]), min_seq=0)
    assert len(outputs) > 4
    for left, right in itertools.pairwise(outputs):
        assert left.info.last_entry < right.info.first_entry
    assert len(await read_ssts(store, "db", ENV, outputs)) == 400


@pytest.mark.fault("F4.21")
async def test_output_ids_are_not_older_than_the_job():
    """The worker's clock is slower than the coordinator's."""
    store = MemoryStore()
    ahead = ENV.clock.now_ms() + 600_000
    job = replace(await job_of(store, [[put(key(1), 1)]]), id=ulid(ahead))
    (output,) = await run(store, job)
    assert output.id.ms == ahead


async def test_ranges_cover_everything_once():
    store = MemoryStore()
    l0 = [[put(key(i), 1000 * n + i, bytes(30)) for i in range(n, 1000, 4)] for n in range(4)]
    options = replace(SMALL, max_subcompactions=4)
    progress = JobProgress(retention_min_seq=Seq(2**40))
    outputs = await run(store, await job_of(store, l0), options, progress)
    assert len(progress.ranges) == 4
    assert [e.key for e in await read_ssts(store, "db", ENV, outputs)] == [key(i) for i in range(1000)]
    assert progress.context().subcompactions[0].range == progress.ranges[0]


@pytest.mark.fault("F4.17")
@pytest.mark.parametrize("kept", range(4))
async def test_an_interrupted_job_resumes_after_its_last_sst(kept):
    """T6.c: each row exists once in the end, independent of what was published."""
    store = MemoryStore()
    rows = [put(key(i), i + 1, bytes(40)) for i in range(200)]
    job = await job_of(store, [rows])
    first = await run(store, job)
    ctx = CompactionContext(
        subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=first[:kept]),), retention_min_seq=Seq(2**40)
    )
    progress = JobProgress(retention_min_seq=Seq(0), resumed=ctx)
    assert progress.retention_min_seq == 2**40, "F4.17: the barrier is the context's"
    outputs = await run(store, job, progress=progress)
    assert outputs[:kept] == first[:kept]
    assert [e.key for e in await read_ssts(store, "db", ENV, outputs)] == [key(i) for i in range(200)]


@pytest.mark.fault("F4.15")
async def test_resuming_inside_a_key_with_many_versions():
    """SlateDB splits the versions of a key over two SSTs; the remaining ones follow."""
    store = MemoryStore()
    versions = [put(key(5), seq, bytes(20)) for seq in range(300, 0, -1)]
    job = await job_of(store, [[*versions, put(key(6), 1)]])
    part = (await write_view(store, "db", ulid(900), versions[:120])).sst
    ctx = CompactionContext(
        subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=(part,)),), retention_min_seq=Seq(0)
    )
    outputs = await run(store, job, progress=JobProgress(retention_min_seq=Seq(0), resumed=ctx))
    entries = await read_ssts(store, "db", ENV, outputs)
    assert [(e.key, e.seq) for e in entries] == [(key(5), seq) for seq in range(300, 0, -1)] + [(key(6), 1)]


@pytest.mark.fault("F4.16")
async def test_a_plan_of_another_worker_is_used_as_it_is():
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1) for i in range(10)]])
    ranges = (KeyRange.half_open(None, key(3)), KeyRange.half_open(key(3), None))
    ctx = CompactionContext(
        subcompactions=tuple(Subcompaction(range=keys) for keys in ranges), retention_min_seq=Seq(2**40)
    )
    outputs = await run(store, job, progress=JobProgress(retention_min_seq=Seq(0), resumed=ctx))
    assert [sst.info.first_entry for sst in outputs] == [key(0), key(3)]


async def test_a_damaged_input_fails_the_job_with_its_place():
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(30)) for i in range(100)]])
    (name,) = [meta.key for meta in await store.list("db/compacted/")]
    data = bytearray((await store.get(name)).data)
    data[300] ^= 1
    await store.put(name, bytes(data))
    with pytest.raises(CorruptionError, match=name):
        await run(store, job)
    assert len(await store.list("db/compacted/")) == 1, "nothing half-written is visible"


@pytest.mark.parametrize("rows", [60, 20_000])
async def test_an_input_that_is_not_sorted_fails_the_job_and_not_the_process(rows):
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1) for i in range(rows)]])
    (name,) = [meta.key for meta in await store.list("db/compacted/")]
    data = bytearray((await store.get(name)).data)
    place = data.index(key(16))  # a restart shows its whole key
    data[place : place + len(key(0))] = key(900_000)
    info = job.views[0].sst.info
    image = open_section(data[info.index_offset : info.index_offset + info.index_len], info.compression)
    offsets = decode_index(image, data_len=info.data_len, path=name).offsets.tolist()
    start, end = next(pair for pair in itertools.pairwise(offsets) if pair[0] <= place < pair[1])
    data[end - 4 : end] = zlib.crc32(data[start : end - 4]).to_bytes(4, "big")
    await store.put(name, bytes(data))
    with pytest.raises(CorruptionError, match="out of order"):
        await run(store, job)


async def test_cancelling_leaves_finished_ssts_only():
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(40)) for i in range(2000)]])
    progress = JobProgress(retention_min_seq=Seq(2**40))
    with anyio.CancelScope() as scope:
        progress.on_sst = lambda _: scope.cancel() if len(progress.outputs()) == 3 else None
        await run(store, job, progress=progress)
    assert scope.cancelled_caught
    assert progress.rework_bytes > 0
    outputs = await run(store, job, progress=JobProgress(retention_min_seq=Seq(0), resumed=progress.context()))
    assert [e.key for e in await read_ssts(store, "db", ENV, outputs)] == [key(i) for i in range(2000)]


def concatenate(key, existing, operands):
    return b"".join([existing or b"", *operands])


def operand(key, seq, value):
    return Entry(key, value, seq, FLAG_MERGE)


async def transformed(store, job, transforms, metrics=None, progress=None):
    executor = Executor(store, "db", ENV, SMALL, transforms=transforms, metrics=metrics)
    outputs = await executor.run(job, progress or JobProgress(retention_min_seq=Seq(2**40)))
    return await read_ssts(store, "db", ENV, outputs)


async def test_operands_are_folded_and_counted():
    store, metrics = MemoryStore(), Metrics()
    rows = [put(key(1), 1, b"0"), *(operand(key(1), seq, b"%d" % seq) for seq in (2, 3, 4))]
    job = await job_of(store, [rows, [operand(key(2), 9, b"9")]])
    folded = await transformed(store, job, Transforms(operator=concatenate), metrics)
    assert [(e.value, e.seq, e.is_merge) for e in folded] == [(b"0234", 4, False), (b"9", 9, True)]
    labels = {"db": "", "path": "compact"}
    assert metrics.registry.get_sample_value("slatedb_merge_operator_operands_total", labels) == 4


@pytest.mark.fault("F4.20")
async def test_operands_without_an_operator():
    """The setting decides whether they pass or fail the job."""
    store = MemoryStore()
    job = await job_of(store, [[put(key(1), 1, b"0"), operand(key(1), 2, b"2")]])
    assert [e.value for e in await transformed(store, job, Transforms())] == [b"2", b"0"]
    with pytest.raises(MergeOperatorMissing, match="key 9:6b65793030303030 has merge operands"):
        await transformed(store, job, Transforms(merge_passthrough=False))


def raising(key, existing, operands):
    raise ValueError(key)


@pytest.mark.parametrize(
    ("operator", "told"),
    [(raising, "raised ValueError at "), (lambda *_: "text", "returned something else than bytes")],
)
async def test_operands_that_the_operator_refuses_stay_and_are_told(operator, told):
    """They must not prevent the compaction of all other rows."""
    store, metrics = MemoryStore(), Metrics()

    def fussy(key_, existing, operands):
        return operator(key_, existing, operands) if key_ == key(1) else concatenate(key_, existing, operands)

    rows = [put(key(1), 1, b"0"), *(operand(key(i), seq, b"%d" % seq) for i in (1, 2) for seq in (4, 5))]
    job = await job_of(store, [rows])
    progress = JobProgress(retention_min_seq=Seq(2**40))
    transforms = Transforms(operator=fussy, operator_name="sum")
    kept = await transformed(store, job, transforms, metrics, progress)
    assert [(e.key, e.value, e.is_merge) for e in kept] == [
        (key(1), b"5", True),
        (key(1), b"4", True),
        (key(1), b"0", False),
        (key(2), b"45", True),
    ]
    assert progress.refused_count == 2
    assert "merge operator 'sum' " + told in progress.why_refused
    assert "for key 9:6b65793030303030" in progress.why_refused
    labels = {"db": "", "path": "compact"}
    assert metrics.registry.get_sample_value("slatedb_merge_operator_failures_total", labels) == 2


async def test_a_job_that_one_worker_folded_and_another_only_passes():
    """Operands that the last row of an output already includes must not count again."""
    store = MemoryStore()
    rows = [put(key(i), i + 1, bytes(60)) for i in range(100)]
    rows += [operand(key(i), 1000 + 10 * i + n, b"%d," % n) for i in range(0, 100, 2) for n in range(3)]
    job = await job_of(store, [rows[:100], rows[100:]])
    job = replace(job, l0=job.l0[:1])  # operands alone, whose values lie in an older run
    progress = JobProgress(retention_min_seq=Seq(2**40))
    with anyio.CancelScope() as scope:
        progress.on_sst = lambda _: scope.cancel()
        options = replace(SMALL, max_sst_size_bytes=512)
        await Executor(store, "db", ENV, options, transforms=Transforms(operator=concatenate)).run(job, progress)
    assert len(progress.outputs()) == 1
    resumed = JobProgress(retention_min_seq=Seq(0), resumed=progress.context())
    entries = await transformed(store, job, Transforms(), progress=resumed)
    for i in range(0, 100, 2):
        versions = [e.value for e in entries if e.key == key(i)]
        assert b"".join(versions[::-1]) == b"0,1,2,"


class DropOld(CompactionFilter):
    """A filter that deletes rows written before a time, with masks."""

    def __init__(self, context):
        self._context = context

    def filter(self, batch):
        return Decisions(delete=batch.has_create_ts & (batch.create_ts < self._context.clock_tick - 100))


class Shout(CompactionFilter):
    def __init__(self, context):
        pass

    def filter(self, batch):
        return Decisions(values={i: value.upper() for i, value in enumerate(batch.values)})


FILTERS = (NamedCompactionFilter("drop-old", DropOld), NamedCompactionFilter("shout", Shout))


@pytest.mark.parametrize("last_run", [True, False])
async def test_filters_see_rows_one_after_the_other(last_run):
    """A deletion leaves a tombstone where an older row may be below, and nothing elsewhere."""
    store = MemoryStore()
    rows = [Entry(key(i), b"v%d" % i, i + 1, FLAG_CREATE_TS, 10 * i) for i in range(100)]
    job = await job_of(store, [rows], last_run=last_run, tick=600)
    entries = await transformed(store, job, Transforms(filters=FILTERS))
    if last_run:
        assert [(e.key, e.value) for e in entries] == [(key(i), b"V%d" % i) for i in range(50, 100)]
    else:
        assert [(e.key, e.value) for e in entries] == [(key(i), b"V%d" % i if i >= 50 else b"") for i in range(100)]
        assert all(e.is_tombstone for e in entries[:50])


async def test_a_filter_that_fails_leaves_finished_ssts_to_the_next_attempt():
    """The next attempt resumes after them."""
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(40)) for i in range(5000)]])
    calls = []

    class FailsOnce(Shout):
        def filter(self, batch):
            calls.append(batch.keys[0])
            if len(calls) == 3:
                raise RuntimeError
            return super().filter(batch)

    progress = JobProgress(retention_min_seq=Seq(2**40))
    transforms = Transforms(filters=(NamedCompactionFilter("flaky", FailsOnce),))
    with pytest.raises(CompactionFilterFailed, match="'flaky', segment root"):
        await transformed(store, job, transforms, progress=progress)
    written = len(progress.outputs())
    assert written > 3
    resumed = JobProgress(retention_min_seq=Seq(0), resumed=progress.context())
    entries = await transformed(store, job, transforms, progress=resumed)
    assert [e.key for e in entries] == [key(i) for i in range(5000)]
    assert calls[3] > progress.outputs()[-1].info.last_entry, "it sees only what is still to be written"


async def test_the_first_range_that_fails_stops_the_others_and_their_outputs_stay():
    """No work follows the error, and the next attempt uses the finished outputs."""
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(40)) for i in range(4000)]])
    middle = key(2000)
    ranges = (KeyRange.half_open(None, middle), KeyRange.half_open(middle, None))
    ctx = CompactionContext(
        subcompactions=tuple(Subcompaction(range=keys) for keys in ranges), retention_min_seq=Seq(2**40)
    )
    progress = JobProgress(retention_min_seq=Seq(0), resumed=ctx)

    class FailsAbove(Shout):
        def filter(self, batch):
            if batch.keys[0] >= middle:
                raise RuntimeError
            return

    transforms = Transforms(filters=(NamedCompactionFilter("fails", FailsAbove),))
    with pytest.raises(CompactionFilterFailed):
        await transformed(store, job, transforms, progress=progress)
    named = {sst_key("db", sst.id) for sst in progress.outputs()}
    stored = {meta.key for meta in await store.list("db/compacted/")}
    assert named <= stored
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    after = {meta.key for meta in await store.list("db/compacted/")}
    assert after == stored, "nothing is written after the job has failed"
    resumed = JobProgress(retention_min_seq=Seq(0), resumed=progress.context())
    entries = await transformed(store, job, Transforms(), progress=resumed)
    assert [e.key for e in entries] == [key(i) for i in range(4000)]


async def test_a_range_that_ends_without_a_word_is_no_result():
    """An unrequested cancellation of a client library ends a task group without an error."""
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(40)) for i in range(4000)]])

    async def gives_up(_key, parts):
        async for _ in parts:
            pass
        raise asyncio.CancelledError

    store.put_stream = gives_up
    progress = JobProgress(retention_min_seq=Seq(2**40))
    with pytest.raises(UnavailableError, match="cancelled before its last row"):
        await run(store, job, progress=progress)


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit])
async def test_what_code_of_users_raises_never_ends_a_range_in_silence(raised):
    """A filter that runs an event loop of its own, or ends the process, fails the job; an operator's operands stay."""
    store = MemoryStore()
    job = await job_of(store, [[put(key(i), i + 1, bytes(40)) for i in range(4000)]])

    class GivesUp(Shout):
        def filter(self, batch):
            raise raised

    transforms = Transforms(filters=(NamedCompactionFilter("gives-up", GivesUp),))
    with pytest.raises(CompactionFilterFailed, match=f"raised {raised.__name__} at"):
        await transformed(store, job, transforms)
    operands = await job_of(store, [[Entry(b"k", b"1", seq, FLAG_MERGE) for seq in (2, 1)]])

    def operator(_key, _existing, _operands):
        raise raised

    progress = JobProgress(retention_min_seq=Seq(2**40))
    transforms = Transforms(operator=operator, operator_name="gives-up")
    assert len(await transformed(store, operands, transforms, progress=progress)) == 2
    assert f"raised {raised.__name__} at" in progress.why_refused


async def test_an_operator_is_never_called_on_the_loop():
    """The event loop stays free for heartbeats while an operator runs, even for few operands."""
    store, threads = MemoryStore(), set()

    def operator(key, existing, operands):
        threads.add(threading.get_ident())
        return concatenate(key, existing, operands)

    job = await job_of(store, [[operand(key(i), seq, b"1") for i in range(3) for seq in (2, 1)]])
    executor = Executor(store, "db", Env.system(), SMALL, transforms=Transforms(operator=operator, operator_name="o"))
    await executor.run(job, JobProgress(retention_min_seq=Seq(2**40)))
    assert threads
    assert threading.get_ident() not in threads


async def test_reads_are_as_large_as_what_they_unpack_to():
    """Rows that compress well must not take a multiple of the memory."""
    store = MemoryStore()
    rows = [put(key(i), i + 1, b"a value like all others" * 20) for i in range(8000)]
    view = await write_view(store, "db", ulid(1), rows, compression=Compression.ZSTD)
    assert view.sst.info.data_len < 400_000
    tree = Tree(l0=(view,))
    spec = Spec(l0_view_ids=(view.id,), sorted_runs=(), destination=RunId(1))
    job = plan_job(entry(500, spec), Manifest(tree=tree))
    async with anyio.create_task_group() as tasks:
        reader = SstReader(store, SstPaths("db"), BlockCache(), ENV)
        inputs = JobInputs(job, reader, ReadAhead(tasks))
        (blocks,) = inputs.blocks(EVERYTHING, 1 << 20)
        (columns,) = inputs.rows(EVERYTHING, 1 << 20)
        while (chunk := await blocks.next()) is not None:
            assert len(chunk.image) < 3 << 19
        while (piece := await columns.next()) is not None:
            assert piece.size_bytes < 3 << 19


async def test_what_was_read_ahead_is_merged_without_a_change_of_threads():
    """A change of threads costs as much as the merge of a megabyte, and four sources run out of blocks in turn."""
    changes = []

    class Spy(InlineCpu):
        async def run(self, work):
            await anyio.wait_all_tasks_blocked()  # every read that was started is over
            changes.append(work)
            return await super().run(work)

    env = Env(SystemClock(), random.Random(1), Spy())
    store = MemoryStore()
    rows = [put(key(i), i + 1, b"v" * 1000) for i in range(8000)]
    job = await job_of(store, [rows[source::4] for source in range(4)])
    options = replace(SMALL, sst=SstOptions(), max_sst_size_bytes=64 << 20, memory_bytes=1, max_active_ranges=1)
    outputs = await Executor(store, "db", env, options).run(job, JobProgress(retention_min_seq=Seq(2**40)))
    assert len(await read_ssts(store, "db", ENV, outputs)) == 8000
    reads = job.input_bytes / (64 << 10)
    assert reads > 100
    assert len(changes) < reads / 2


async def test_huge_blocks_are_looked_into_beside_the_loop():
    """Their checksum alone takes tens of milliseconds, so a thread computes it."""
    beside = set()

    class Spy(InlineCpu):
        async def run(self, work):
            beside.add(getattr(getattr(work, "func", None), "__name__", ""))
            return await super().run(work)

    env = Env(SystemClock(), random.Random(1), Spy())
    store = MemoryStore()
    job = await job_of(store, [[put(b"a", 1, bytes(9 << 20)), put(b"b", 1, bytes(9 << 20))], [put(b"c", 3)]])
    outputs = await Executor(store, "db", env, SMALL).run(job, JobProgress(retention_min_seq=Seq(2**40)))
    assert "begin" in beside
    assert [(e.key, len(e.value)) for e in await read_ssts(store, "db", ENV, outputs)] == [
        (b"a", 9 << 20),
        (b"b", 9 << 20),
        (b"c", 1),
    ]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
async def test_what_is_encrypted_is_merged_and_encrypted_again(compression):
    store, transformer = MemoryStore(), AesGcm({"k": bytes(32)})
    sst = SstOptions(block_size_bytes=1024, compression=compression, transformer=transformer, min_filter_keys=1)
    views = [
        await write_view(
            store,
            "db",
            ulid(1 + source),
            [put(key(i), 2 * i + source + 1, b"secret%d" % source) for i in range(400)],
            compression=compression,
            transformer=transformer,
        )
        for source in range(2)
    ]
    spec = Spec(l0_view_ids=tuple(view.id for view in reversed(views)), sorted_runs=(), destination=RunId(1))
    job = plan_job(entry(500, spec), Manifest(tree=Tree(l0=tuple(reversed(views)))))
    options = replace(SMALL, sst=sst, max_sst_size_bytes=64 << 10)
    outputs = await Executor(store, "db", ENV, options).run(job, JobProgress(retention_min_seq=Seq(2**40)))
    for output in outputs:
        assert b"secret" not in bytes((await store.get(sst_key("db", output.id))).data)
    merged = await read_ssts(store, "db", ENV, outputs, transformer)
    assert [(row.key, row.value) for row in merged] == [(key(i), b"secret1") for i in range(400)]
