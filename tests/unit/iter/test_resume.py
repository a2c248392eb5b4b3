"""Resuming after rows that another worker wrote, which may have folded operands or cut inside a key."""

import asyncio
import random

import pytest

from shale.env import Env, InlineCpu, SystemClock
from shale.iter.compaction import compaction_source
from shale.iter.resume import ResumeSource
from shale.iter.retention import RetentionPolicy
from shale.iter.source import drain
from shale.kernels.rows import concat_rows, entries_from_rows
from shale.types import Entry
from tests.unit.iter.merge_inputs import Chunks
from tests.unit.iter.traces import row

ENV = Env(SystemClock(), random.Random(1), InlineCpu())


def rest(rows: list[Entry], last: Entry, barrier: int, chunk: int) -> list[Entry]:
    """Return the rows that a worker without an operator still writes."""
    retention = RetentionPolicy(min_seq=barrier, now_tick=10, drop_tombstones=False)
    source = compaction_source([Chunks(rows, chunk)], retention=retention, operator=None, env=ENV)
    return entries_from_rows(concat_rows(asyncio.run(drain(ResumeSource(source, last, barrier)))))


NEXT = Entry(b"l", b"next", 1, 0)

CASES = [
    pytest.param("M5@5 M4@4", "M4M5@5", "", id="operands that the last row holds already"),
    pytest.param("M5@5 M4@4 v@3", "v@5", "", id="operands and their base"),
    pytest.param("M5@5 M4@4!20 v@3", "M5@5", "M4@4!20 v@3", id="an operand that was not folded"),
    pytest.param("M5@5!20 M4@4!20 M3@3 v@2", "M4M5@5!20", "M3@3 v@2", id="operands that expire together only"),
    pytest.param("M9@9 M5@5 M4@4", "M9@9", "M5@5 M4@4", id="above the barrier nothing folds"),
    pytest.param("M9@9 M5@5 v@3", "M5@5", "v@3", id="the same row: it was not folded"),
    pytest.param("v9@9 v7@7 v@3", "v9@9", "v7@7 v@3", id="versions that a snapshot separates"),
]


@pytest.mark.parametrize("chunk", [1, 2, 50])
@pytest.mark.parametrize(("versions", "written", "expected"), CASES)
def test_no_operand_counts_twice_and_no_row_is_lost(versions: str, written: str, expected: str, chunk: int) -> None:
    rows = [Entry(b"j", b"before", 1, 0), *(row(text) for text in versions.split()), NEXT]
    last = row(written)
    assert rest(rows, last, 6, chunk) == [*(row(text) for text in expected.split()), NEXT]
