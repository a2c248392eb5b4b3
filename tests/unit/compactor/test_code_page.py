"""The programs of docs/how-to/compaction-filters.md do what the page says."""

import random
import re

import anyio
import numpy as np
import pytest

import shale
from shale.compaction.filters import FilterContext, RowBatch
from shale.env import Env, InlineCpu, SystemClock
from shale.iter.merge_operator import fold_versions
from shale.kernels.rows import rows_from_entries
from shale.types import EVERYTHING, FLAG_CREATE_TS, FLAG_MERGE, Entry, RunId, Seq, Ulid
from tests.paths import REPOSITORY
from tests.unit.compactor.harness import eventually

PAGE = REPOSITORY / "docs" / "how-to" / "compaction-filters.md"
ENV = Env(SystemClock(), random.Random(1), InlineCpu())
DAY_MS = 86_400_000


@pytest.fixture
def names():
    found: dict = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(program, str(PAGE), "exec", dont_inherit=True), found)
    return found


def test_the_filter(names):
    context = FilterContext(
        job_id=Ulid.from_parts(1, 1),
        segment=b"",
        destination=RunId(1),
        is_dest_last_run=True,
        clock_tick=10 * DAY_MS,
        retention_min_seq=Seq(0),
        key_range=EVERYTHING,
    )
    rows = [
        Entry(b"profile/7", b'{"name": "Ada"}', 1, 0),
        Entry(b"session/1", b"", 2, FLAG_CREATE_TS, 9 * DAY_MS - 1),
        Entry(b"session/2", b"", 3, FLAG_CREATE_TS, 9 * DAY_MS),
        Entry(b"session/3", b"", 4, 0),
        Entry(b"user/1", b"", 5, FLAG_CREATE_TS, 1),
    ]
    decisions = names["ForgetSessions"](context).filter(RowBatch(rows_from_entries(rows), context))
    assert np.asarray(decisions.delete).tolist() == [False, True, False, False, False]
    assert decisions.values == {0: b"{}"}
    assert decisions.drop is None


def test_the_operator(names):
    versions = [Entry(b"k", b"%d" % number, number, FLAG_MERGE) for number in range(30_000, 1, -1)]
    folded = fold_versions([*versions, Entry(b"k", b"1", 1, 0)], names["add"], None)
    assert folded == [Entry(b"k", b"%d" % (30_000 * 30_001 // 2), 30_000, 0)]


@pytest.mark.anyio
async def test_the_program_that_embeds_a_compactor(names, tmp_path):
    place = f"file://{tmp_path}"
    async with shale.Db.open(f"{place}/orders") as db, anyio.create_task_group() as tasks:
        for number in range(4):
            await db.put(b"profile/7", b"version %d" % number)
            await db.flush(shale.FlushType.MEMTABLE)
        tasks.start_soon(names["compact"], place, "orders")

        async def is_compacted() -> bool:
            async with shale.DbReader.open(f"{place}/orders") as reader:
                return await reader.get(b"profile/7") == b"{}"

        await eventually(is_compacted)
        tasks.cancel_scope.cancel()
