"""Jobs over random trees, interrupted anywhere and resumed by others, against a plain model of
docs/reference/protocol.md 7.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale import CompactionFilter, Decisions, FilterContext, RowBatch
from shale.compaction.filters import NamedCompactionFilter
from shale.env import Env, InlineCpu, SystemClock
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    CompactionContext,
    Compression,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Sst,
    SstView,
    Subcompaction,
    TieredSpec,
    Tree,
)
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import Transforms
from tests.examples import examples
from tests.plain_kernels import without_kernels
from tests.unit.compactor.ssts import read_ssts, write_sst_v1, write_view
from tests.unit.compactor.values import entry, ulid

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
TICK = 10
KEYS = [b"a", b"aa", b"b", b"key/0001", b"key/0002", b"key/0002/x", b"zz"]


def concatenate(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return b"".join([existing or b"", *operands])


class ByValue(CompactionFilter):
    """A filter that decides by the value of a row, so that every attempt decides the same."""

    def __init__(self, context: FilterContext) -> None:
        pass

    def filter(self, batch: RowBatch) -> Decisions:
        first = [value[:1] for value in batch.values]
        values = {place: b"new:" + batch.values[place] for place, each in enumerate(first) if each == b"3"}
        return Decisions(delete=[each == b"1" for each in first], drop=[each == b"2" for each in first], values=values)


# The model: lists of one key's versions, newest first.


def folded(versions: list[Entry], barrier: int) -> Iterator[Entry]:
    """Fold operands onto their base (7.4)."""
    rest = list(versions)
    while rest:
        newest = rest.pop(0)
        if not newest.is_merge or newest.seq > barrier:
            yield newest
            continue
        group = [newest]
        while rest and rest[0].is_merge and expiry(rest[0]) == expiry(newest):
            group.append(rest.pop(0))
        has_base = bool(rest) and not rest[0].is_merge and expiry(rest[0]) == expiry(newest)
        if has_base:
            group.append(rest.pop(0))
        stamps = [row.create_ts for row in group if row.flags & FLAG_CREATE_TS]
        flags = newest.flags & FLAG_EXPIRE_TS | (FLAG_CREATE_TS if stamps else 0) | (0 if has_base else FLAG_MERGE)
        value = b"".join(row.value for row in reversed(group))
        yield newest._replace(value=value, flags=flags, create_ts=max(stamps, default=0))


def expiry(row: Entry) -> int | None:
    return row.expire_ts if row.flags & FLAG_EXPIRE_TS else None


def retained(versions: list[Entry], barrier: int) -> Iterator[Entry]:
    """Return the retained versions (7.2), with the tombstones at the old end."""
    for row in versions:
        if row.flags & FLAG_EXPIRE_TS and row.expire_ts <= TICK and not row.is_tombstone:
            if row.is_merge:
                continue
            yield row._replace(value=b"", flags=row.flags & FLAG_CREATE_TS | FLAG_TOMBSTONE, expire_ts=0)
        else:
            yield row
        if row.seq <= barrier and not row.is_merge:
            return


def seen_by_filter(versions: list[Entry]) -> Iterator[Entry]:
    """Return the rows that the filter sees: down to the first that is no operand, without tombstones."""
    is_current = True
    for row in versions:
        first = row.value[:1]
        if not is_current or row.is_tombstone:
            yield row
        elif first == b"1":
            yield row._replace(value=b"", flags=row.flags & FLAG_CREATE_TS | FLAG_TOMBSTONE, expire_ts=0)
        elif first == b"3":
            yield row._replace(value=b"new:" + row.value)
        elif first != b"2":
            yield row
        is_current = is_current and row.is_merge


def without_old_graves(versions: list[Entry]) -> list[Entry]:
    kept = list(versions)
    while kept and kept[-1].is_tombstone:
        kept.pop()
    return kept


def unhidden(rows: list[Entry], barrier: int) -> list[Entry]:
    """Drop invisible rows: those below a value or a tombstone that no snapshot separates from them.

    Retention leaves none, but a filter may turn an operand into a tombstone. A job that resumes after it drops them.
    """
    out: list[Entry] = []
    for _, versions in groupby(rows, key=attrgetter("key")):
        for row in versions:
            out.append(row)
            if row.seq <= barrier and not row.is_merge:
                break
    return out


def model(rows: list[Entry], transforms: Transforms, barrier: int, *, drop: bool) -> list[Entry]:
    out: list[Entry] = []
    for _, group in groupby(sorted(rows, key=lambda row: (row.key, -row.seq)), key=attrgetter("key")):
        versions = list(group)
        if transforms.operator is not None:
            versions = list(folded(versions, barrier))
        versions = list(retained(versions, barrier))
        if drop:
            versions = without_old_graves(versions)
        if transforms.filters:
            versions = list(seen_by_filter(versions))
            if drop:
                versions = without_old_graves(versions)
        out += versions
    return out


def visible(rows: list[Entry], seq: int) -> dict[bytes, bytes]:
    """Return the rows that a reader with the operator sees at a sequence number."""
    state: dict[bytes, bytes] = {}
    for row in sorted(rows, key=lambda row: row.seq):
        if row.seq > seq:
            break
        if row.is_tombstone:
            state.pop(row.key, None)
        else:
            state[row.key] = state.get(row.key, b"") + row.value if row.is_merge else row.value
    return state


# Random trees and attempts.


@dataclass
class Table:
    rows: list[Entry]
    is_v1: bool
    visible: KeyRange | None
    compression: Compression

    @property
    def shown(self) -> list[Entry]:
        return [row for row in self.rows if self.visible is None or self.visible.contains(row.key)]


@st.composite
def histories(draw: st.DrawFn, *, expires: bool) -> list[Entry]:
    kinds = draw(st.lists(st.sampled_from([0, 0, FLAG_MERGE, FLAG_MERGE, FLAG_TOMBSTONE]), min_size=1, max_size=90))
    rows = []
    for seq, kind in enumerate(kinds, 1):
        ttl = expires and kind != FLAG_TOMBSTONE and draw(st.integers(0, 2)) == 0
        flags = kind | (FLAG_EXPIRE_TS if ttl else 0) | draw(st.sampled_from([0, FLAG_CREATE_TS]))
        value = b"" if kind == FLAG_TOMBSTONE else b"%d,%d;" % (draw(st.integers(1, 9)), seq)
        created = seq if flags & FLAG_CREATE_TS else 0
        expire_ts = draw(st.sampled_from([TICK - 1, TICK, TICK + 1])) if ttl else 0
        rows.append(Entry(draw(st.sampled_from(KEYS)), value, seq, flags, created, expire_ts))
    return rows


KEY_RANGES = st.tuples(st.none() | st.sampled_from(KEYS), st.none() | st.sampled_from(KEYS)).map(
    lambda ends: KeyRange.half_open(*ends)
)


@st.composite
def tables(draw: st.DrawFn, rows: list[Entry]) -> Table:
    return Table(
        sorted(rows, key=lambda row: (row.key, -row.seq)),
        draw(st.booleans()),
        draw(st.none() | st.none() | KEY_RANGES),
        draw(st.sampled_from([Compression.NONE, Compression.ZSTD])),
    )


@st.composite
def trees(draw: st.DrawFn, *, expires: bool = True) -> tuple[list[Table], list[list[Table]]]:
    """Return L0s and runs, newest first; the SSTs of a run are cut anywhere, also inside a key."""
    history = draw(histories(expires=expires))
    cuts = draw(st.lists(st.integers(0, len(history)), min_size=1, max_size=5).map(sorted))
    parts = [history[start:end] for start, end in pairwise([0, *cuts, len(history)]) if start < end][::-1]
    run_count = draw(st.integers(0, min(2, len(parts))))
    l0 = [draw(tables(part)) for part in parts[: len(parts) - run_count]]
    runs = []
    for part in parts[len(parts) - run_count :]:
        ordered = sorted(part, key=lambda row: (row.key, -row.seq))
        places = draw(st.lists(st.integers(0, len(ordered)), max_size=3).map(sorted))
        pieces = [ordered[start:end] for start, end in pairwise([0, *places, len(ordered)]) if start < end]
        runs.append([draw(tables(piece)) for piece in pieces])
    return l0, runs


EXECUTORS = st.builds(
    lambda block, size, ranges, codec: ExecutorOptions(
        sst=SstOptions(block_size_bytes=block, compression=codec, min_filter_keys=0),
        max_sst_size_bytes=size,
        max_subcompactions=ranges,
    ),
    st.sampled_from([64, 128, 4096]),
    st.sampled_from([0, 100, 400, 1 << 20]),
    st.integers(1, 4),
    st.sampled_from([Compression.NONE, Compression.LZ4]),
)
INTERRUPTIONS = st.lists(st.tuples(EXECUTORS, st.integers(1, 3)), max_size=3)


async def job_over(store: MemoryStore, l0: list[Table], runs: list[list[Table]], *, last_run: bool) -> Job:
    numbers = iter(range(100, 1000))

    async def view(table: Table) -> SstView:
        sst_id = ulid(next(numbers))
        if table.is_v1:
            identity = SstView.identity(await write_sst_v1(store, "db", sst_id, table.rows, 3))
        else:
            identity = await write_view(
                store, "db", sst_id, table.rows, block_size_bytes=100, compression=table.compression
            )
        return replace(identity, visible_range=table.visible)

    views = tuple([await view(table) for table in l0])
    made = [
        SortedRun(id=RunId(10 - number), ssts=tuple([await view(table) for table in run]))
        for number, run in enumerate(runs)
    ]
    older = () if last_run else (SortedRun(id=RunId(1), ssts=()),)
    spec = TieredSpec(
        l0_view_ids=tuple(each.id for each in views),
        sorted_runs=tuple(run.id for run in made),
        destination=made[-1].id if made else RunId(10),
    )
    manifest = Manifest(tree=Tree(l0=views, compacted=(*made, *older)), last_l0_clock_tick=TICK)
    return plan_job(entry(5000, spec), manifest)


async def attempt(
    store: MemoryStore, job: Job, options: ExecutorOptions, progress: JobProgress, transforms: Transforms, stop_at: int
) -> bool:
    """Execute until the given number of SSTs was written; return whether the job completed."""
    finished = 0
    with anyio.CancelScope() as scope:

        def count(_sst: Sst) -> None:
            nonlocal finished
            finished += 1
            if finished == stop_at:
                scope.cancel()

        progress.on_sst = count
        await Executor(store, "db", ENV, options, transforms=transforms).run(job, progress)
    return not scope.cancelled_caught


async def carried_out(
    store: MemoryStore,
    job: Job,
    attempts: list[tuple[ExecutorOptions, int]],
    last: ExecutorOptions,
    barrier: int,
    transforms: list[Transforms],
    ctx: CompactionContext | None = None,
) -> list[Sst]:
    """Run interrupted attempts, each by a new executor that knows only the context, and a last one to the end."""
    turns = iter(transforms)
    progress = JobProgress(retention_min_seq=Seq(barrier), resumed=ctx)
    for options, stop_at in attempts:
        if await attempt(store, job, options, progress, next(turns), stop_at):
            break
        before = progress
        progress = JobProgress(retention_min_seq=Seq(0), resumed=before.context())
        assert progress.outputs() == before.outputs()
    else:
        assert await attempt(store, job, last, progress, next(turns), 10**9)
    outputs = list(progress.outputs())
    for left, right in pairwise(outputs):
        assert left.info.last_entry <= right.info.first_entry  # type: ignore[operator]
    return outputs


def all_rows(l0: list[Table], runs: list[list[Table]]) -> list[Entry]:
    return [row for table in [*l0, *(each for run in runs for each in run)] for row in table.shown]


@pytest.fixture(params=["plain", "kernels"], scope="module", autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run with kernels, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            without_kernels(patch)
        yield


TREES = trees()
FILTERS = (NamedCompactionFilter("by-value", ByValue),)
FOREIGN = st.sampled_from(
    [
        Transforms(),
        Transforms(operator=concatenate),
        Transforms(operator=concatenate, filters=FILTERS),
    ]
)
"""No job passes operands through, changes them with a filter, and cuts inside a key."""
TRANSFORMS = st.builds(
    lambda fold, filter_: Transforms(operator=concatenate if fold else None, filters=FILTERS if filter_ else ()),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=examples(50))
@given(TREES, st.integers(0, 90), st.booleans(), TRANSFORMS, INTERRUPTIONS, EXECUTORS)
def test_every_row_comes_out_as_the_model_says(
    tree: tuple[list[Table], list[list[Table]]],
    barrier: int,
    last_run: bool,
    transforms: Transforms,
    attempts: list[tuple[ExecutorOptions, int]],
    last: ExecutorOptions,
) -> None:
    async def run() -> tuple[list[Entry], list[Sst]]:
        store = MemoryStore()
        job = await job_over(store, *tree, last_run=last_run)
        outputs = await carried_out(store, job, attempts, last, barrier, [transforms] * (len(attempts) + 1))
        return await read_ssts(store, "db", ENV, outputs), outputs

    rows, outputs = asyncio.run(run())
    assert rows == model(all_rows(*tree), transforms, barrier, drop=last_run)
    for left, right in pairwise(outputs):
        assert left.info.last_entry != right.info.first_entry, "a key never spans two SSTs of ours"


@settings(max_examples=examples(30))
@given(TREES, st.integers(0, 90), st.booleans(), FOREIGN, st.data())
def test_resuming_after_a_worker_that_cuts_inside_keys(
    tree: tuple[list[Table], list[list[Table]]],
    barrier: int,
    last_run: bool,
    transforms: Transforms,
    data: st.DataObject,
) -> None:
    """SlateDB's worker published its own ranges, and SSTs that end after any row."""
    expected = model(all_rows(*tree), transforms, barrier, drop=last_run)
    edges = [None, *sorted(data.draw(st.sets(st.sampled_from(KEYS), max_size=3))), None]
    attempts, last = data.draw(INTERRUPTIONS), data.draw(EXECUTORS)

    async def run() -> list[Entry]:
        store = MemoryStore()
        job = await job_over(store, *tree, last_run=last_run)
        subcompactions = []
        for number, ends in enumerate(pairwise(edges)):
            keys = KeyRange.half_open(*ends)
            inside = [row for row in expected if keys.contains(row.key)]
            cuts = data.draw(st.lists(st.integers(0, len(inside)), max_size=3).map(sorted))
            pieces = [inside[start:end] for start, end in pairwise([0, *cuts]) if start < end]
            ssts = [
                (await write_view(store, "db", ulid(6000 + 10 * number + i), piece, block_size_bytes=64)).sst
                for i, piece in enumerate(pieces)
            ]
            subcompactions.append(Subcompaction(range=keys, output_ssts=tuple(ssts)))
        ctx = CompactionContext(subcompactions=tuple(subcompactions), retention_min_seq=Seq(barrier))
        outputs = await carried_out(store, job, attempts, last, 0, [transforms] * (len(attempts) + 1), ctx)
        return await read_ssts(store, "db", ENV, outputs)

    assert unhidden(asyncio.run(run()), barrier) == unhidden(expected, barrier)


@settings(max_examples=examples(30))
@given(trees(expires=False), st.integers(0, 90), st.booleans(), INTERRUPTIONS, EXECUTORS, st.data())
def test_workers_with_and_without_the_operator_share_a_job(
    tree: tuple[list[Table], list[list[Table]]],
    barrier: int,
    last_run: bool,
    attempts: list[tuple[ExecutorOptions, int]],
    last: ExecutorOptions,
    data: st.DataObject,
) -> None:
    """The rows differ, but readers and snapshots see the same values."""
    folds = data.draw(st.lists(st.booleans(), min_size=len(attempts) + 1, max_size=len(attempts) + 1))
    transforms = [Transforms(operator=concatenate if fold else None) for fold in folds]

    async def run() -> list[Entry]:
        store = MemoryStore()
        job = await job_over(store, *tree, last_run=last_run)
        return await read_ssts(store, "db", ENV, await carried_out(store, job, attempts, last, barrier, transforms))

    rows, before = asyncio.run(run()), all_rows(*tree)
    assert len({(row.key, row.seq) for row in rows}) == len(rows)
    for seq in {barrier, barrier + 1, 91}:
        assert visible(rows, seq) == visible(before, seq)
