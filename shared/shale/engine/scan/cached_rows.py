"""Rows of a scan from memory, by one call of a kernel: memtables, and the blocks of SSTs that are cached.

Nothing is awaited, no columns are made, and nothing is kept between two calls: each finds its place by key.
"""

import mmap
import struct
from functools import cache
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


class MissingPart(NamedTuple):
    """The metadata of an SST, or a block, that is not cached; see ``TreeLookup.load_part_now``."""

    tree: TreeLookup
    level: int
    sst: int
    block: int


def has_unsorted_rows(view: SuperVersion) -> bool:
    """Return whether a memtable has so many unsorted rows that sorting them would block the loop."""
    return any(type(table) is Memtable and table.sorted_log.has_long_tail for table in view.tables)


def append_cached(rows: list[Any], view: SuperVersion, wanted: WantedRows, walk_rows_max: int = WALK_ROWS_MAX) -> int:
    """Append rows from memory in the order of the scan; the process must have kernels.

    Returns:
        ``END``: the range has no more rows.  Otherwise one of the answers of ``layout.scan``, see ``missing_part``:
        what was appended is complete up to there.
    """
    start, end, max_seq, rows_max, bytes_max, now_ms, is_reversed, as_pairs = wanted
    trees = view.trees
    lookups = trees.lookups_between(start, end)
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
        trees.bound(max_seq),
        -1 if start is None else len(start),
        -1 if end is None else len(end),
        is_reversed,
        _scratch_address(),
        trees.lookups[0].counts_address,
        walk_rows_max,
    )
    request = b"".join([header, *[tree.level_words for tree in lookups], *tables, start or b"", end or b""])
    return compiled.scan_cached(request, rows, Row, None)


def missing_part(view: SuperVersion, wanted: WantedRows, answer: int) -> MissingPart | None:
    """Return what was missing for the next row; ``None``: the answer has another reason."""
    if answer & layout.STATUS_MASK not in (layout.NEED_META, layout.NEED_BLOCK):
        return None
    level = (answer >> layout.SOURCE_AT & layout.SOURCE_MASK) - sum(len(table.sorted_parts()) for table in view.tables)
    sst, block = answer >> layout.VIEW_AT & layout.VIEW_MASK, answer >> layout.BLOCK_AT
    for tree in view.trees.lookups_between(wanted.start, wanted.end):
        if level < len(tree.levels):
            return MissingPart(tree, level, sst, block)
        level -= len(tree.levels)
    raise AssertionError("the kernel misses a part of a level that was not in the request")


def _tables(view: SuperVersion, max_seq: int | None) -> list[bytes]:
    """Return the sorted parts of memtables as the kernel reads them."""
    tables = []
    for table in view.tables:
        for part in table.sorted_parts():
            limit = U64_MAX if max_seq is None or table is view.own else max_seq
            tables.append(_TABLE.pack(part.columns_address, len(part), limit))
    return tables


@cache
def _scratch_address() -> int:
    """Return the memory in which the kernel works, for all threads: it holds the interpreter lock while it runs."""
    return address_of(np.frombuffer(_scratch(), np.uint8))


@cache
def _scratch() -> mmap.mmap:
    memory = mmap.mmap(-1, layout.SCRATCH_BYTES)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # a few bytes of every buffer are used
    return memory
