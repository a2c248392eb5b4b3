"""Rows of a scan from memory, by one call of a kernel: memtables, and the blocks of SSTs that are cached.

Nothing is awaited, no columns are made, and nothing is kept between two calls: each finds its place by key.
"""

import mmap
import struct
import threading
from typing import Any, NamedTuple

import numpy as np

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.super_version import SuperVersion
from shale.engine.read.tree_lookup import TreeLookup
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.layout import scan as layout
from shale.types import U64_MAX, Row

_BYTES_AT_ONCE = 1 << 20
"""Keys and values of one call, which other tasks wait for."""
WALK_ROWS_MAX = 10_000
"""Versions that one call passes, hidden ones included: longer walks are for reads in chunks, which let others run."""
_TREES_MAX = 8
"""A range over more segments is read in chunks."""
# Words, of which one is unsigned.
_HEADER = struct.Struct(f"={layout.SST_MAX_SEQ}qQ{layout.REQUEST_WORDS - layout.SST_MAX_SEQ - 1}q")
_TABLE = struct.Struct(f"={layout.TABLE_MAX_SEQ}qQ")


class WantedRows(NamedTuple):
    """What to read.

    Args:
        start: the first key of the range; ``None``: no bound.
        end: the first key after it.
        max_seq, now_ms, is_reversed: see ``ScanPlan``.
        rows_max: rows at most.
        bytes_max: no more rows once keys and values have this many bytes, at most 1 MiB.
        as_pairs: tuples of key and value instead of ``Row``.
    """

    start: bytes | None
    end: bytes | None
    max_seq: int | None
    rows_max: int
    bytes_max: int | None = None
    now_ms: int | None = None
    is_reversed: bool = False
    as_pairs: bool = False


class Misses(NamedTuple):
    """What was missing, at the start for several sources.

    Args:
        sources: of each the level, numbered over all trees of the request, the SST and the block.
        walk_left, bytes_left: versions to pass and bytes to return that were left.
    """

    sources: list[tuple[int, int, int]]
    walk_left: int
    bytes_left: int


def has_unsorted_rows(view: SuperVersion) -> bool:
    """Return whether a memtable has so many unsorted rows that sorting them would block the loop."""
    return any(type(table) is Memtable and table.sorted_log.has_long_tail for table in view.tables)


def append_cached(
    rows: list[Any],
    view: SuperVersion,
    wanted: WantedRows,
    walk_rows_max: int = WALK_ROWS_MAX,
    *,
    windows: int = 0,
    counts: int = 0,
    trees: list[TreeLookup] | None = None,
) -> int:
    """Append rows from memory in the order of the scan; the process must have kernels.

    Args:
        rows: the list.
        view, wanted: what to read.
        walk_rows_max: versions to pass at most, hidden ones included.
        windows: address of a window for each level of the trees in the range (``layout.scan``); 0: there are none.
        counts: address of the counts of what was used; 0: those of the reader.
        trees: those to read, of which the windows are; ``None``: those in the range.

    Returns:
        ``END``: the range has no more rows.  Otherwise one of the answers of ``layout.scan``, see ``last_misses``:
        what was appended is complete up to there.
    """
    start, end, max_seq, rows_max, bytes_max, now_ms, is_reversed, as_pairs = wanted
    lookups = view.trees.lookups_between(start, end) if trees is None else trees
    if len(lookups) > _TREES_MAX:
        return layout.TOO_LARGE
    tables = _tables(view, max_seq)
    header = _HEADER.pack(
        rows_max,
        _BYTES_AT_ONCE if bytes_max is None else min(bytes_max, _BYTES_AT_ONCE),
        now_ms is not None,
        now_ms or 0,
        as_pairs,
        len(lookups),
        len(tables),
        view.trees.bound(max_seq),
        -1 if start is None else len(start),
        -1 if end is None else len(end),
        is_reversed,
        _SCRATCH.address,
        counts or view.trees.lookups[0].counts_address,
        walk_rows_max,
        windows,
    )
    request = b"".join([header, *[tree.level_words for tree in lookups], *tables, start or b"", end or b""])
    return compiled.scan_cached(request, rows, Row, None)


def last_misses(view: SuperVersion) -> Misses:
    """Return what was missing in the last call of this thread, which answered that something is."""
    words = _SCRATCH.words
    first = layout.MISSES // 8
    answers = words[first : first + words[layout.MISSES_AT // 8]].tolist()
    tables = _count_parts(view)
    sources = [_place(answer, tables) for answer in answers]
    return Misses(sources, words[layout.WALK_LEFT_AT // 8], words[layout.BYTES_LEFT_AT // 8])


def _count_parts(view: SuperVersion) -> int:
    """Return how many sources of a request are tables."""
    return sum([len(table.sorted_parts()) for table in view.tables])


def _place(answer: int, tables: int) -> tuple[int, int, int]:
    """Return level, SST and block of an answer; levels are numbered over all trees of the request."""
    level = (answer >> layout.SOURCE_AT & layout.SOURCE_MASK) - tables
    return level, answer >> layout.VIEW_AT & layout.VIEW_MASK, answer >> layout.BLOCK_AT


def _tables(view: SuperVersion, max_seq: int | None) -> list[bytes]:
    """Return the sorted parts of memtables as the kernel reads them."""
    tables = []
    for table in view.tables:
        for part in table.sorted_parts():
            limit = U64_MAX if max_seq is None or table is view.own else max_seq
            tables.append(_TABLE.pack(part.columns_address, len(part), limit))
    return tables


class _Scratch(threading.local):
    """The memory in which the kernel works, one for each thread: answers are read from it after the call."""

    def __init__(self) -> None:
        # Private: a forked process must not work in the memory of its parent or of other children.
        memory = mmap.mmap(-1, layout.SCRATCH_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)  # a few bytes of every buffer are used
        self.address = address_of(np.frombuffer(memory, np.uint8))
        self.words = memoryview(memory)[: layout.ORDER_AT].cast("q")
        """The words at its start, which keep it alive."""


_SCRATCH = _Scratch()
