"""Inputs of merges: generated rows and sources that return them in chunks."""

from collections import deque

from hypothesis import strategies as st

from shale.compaction.filters import FilterContext
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import Rows, rows_from_entries
from shale.types import EVERYTHING, Entry, RunId, Seq, Ulid
from tests.unit.kernels.strategies import KEYS, entries, in_order

SEQS = st.integers(0, 40) | st.integers(0, 2**64 - 1)
FEW_KEYS = st.sampled_from([b"a", b"aa", b"a\0", b"key/00000001", b"key/0000000000000001", b"key/0000000000000001x"])
RULES = st.builds(
    MergeRules,
    newest_only=st.booleans(),
    max_seq=st.none() | SEQS,
    min_seq=st.none() | SEQS,
    now_tick=st.none() | st.integers(-(2**63), 2**63 - 1),
    drop_tombstones=st.booleans(),
)
SOURCES = st.lists(
    st.lists(st.builds(lambda entry, seq: entry._replace(seq=seq), entries(FEW_KEYS | KEYS), SEQS)).map(in_order),
    max_size=5,
)

CONTEXT = FilterContext(
    job_id=Ulid.from_parts(1, 1),
    segment=b"",
    destination=RunId(3),
    is_dest_last_run=False,
    clock_tick=1000,
    retention_min_seq=Seq(5),
    key_range=EVERYTHING,
)
"""Of a compaction, for its filter."""


class Chunks:
    """A source that returns at most this number of rows at a time."""

    def __init__(self, rows: list[Entry], size: int) -> None:
        self._chunks = deque(rows_from_entries(rows[start : start + size]) for start in range(0, len(rows), size))

    async def next(self) -> Rows | None:
        return self._chunks.popleft() if self._chunks else None
