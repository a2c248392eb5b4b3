"""What a scan merges: memtables, L0s and sorted runs of every tree that the range touches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shale.iter.merge import MergeSource
from shale.iter.source import RowSource, RowsSource
from shale.iter.visible import VisibleSource
from shale.kernels.rows import Rows
from shale.sst.row_search import rows_up_to
from shale.sst.source import RunSource, SourceOptions, SstSource
from shale.types import KeyRange, Seq, Tree

if TYPE_CHECKING:
    from shale.engine.read_view import ReadView

_ROWS_SPARE = 64
"""A source is asked for so many rows beyond its even share of what a limited scan needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What a scan wants.

    ``max_seq``: versions above are invisible (``None``: none is).  ``prefix``: all keys in the range begin with it.
    ``limit``: rows at most.  ``now_ms``: rows that have expired by then are invisible.  ``read_ahead_bytes``: of one
    request, ``None``: what the handle says.  ``cache_blocks``: whether short reads go into the cache.
    """

    key_range: KeyRange
    max_seq: int | None = None
    prefix: bytes | None = None
    limit: int | None = None
    now_ms: int | None = None
    read_ahead_bytes: int | None = None
    cache_blocks: bool = True


def visible_source(view: "ReadView", plan: ScanPlan) -> RowSource:
    """The visible rows of a range, one per key."""
    sources = _table_sources(view, plan)
    trees = list(view.trees_in(plan.key_range))
    if len(trees) == 1:
        sources += tree_sources(view, plan, *trees[0])
    elif trees:
        sources.append(ChainSource(partial(_merged, view, plan, part, tree) for part, tree in trees))
    return VisibleSource(
        sources,
        plan.max_seq if view.own is None else None,
        view.reader.env,
        operator=view.options.merge_operator,
        now_tick=plan.now_ms,
    )


class ChainSource:
    """Sources with disjoint keys, one after the other; each is made when its turn comes."""

    def __init__(self, makers: Iterable[Callable[[], RowSource]]) -> None:
        self._makers = iter(makers)
        self._source: RowSource | None = None

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while True:
            if self._source is not None and (rows := await self._source.next()) is not None:
                return rows
            maker = next(self._makers, None)
            if maker is None:
                self._source = None
                return None
            self._source = maker()


def table_rows(view: "ReadView", plan: ScanPlan, key_range: KeyRange) -> list[Rows]:
    """The rows of memtables in a range.

    Without writes of a transaction versions that are too new are left out while merging, which costs nothing.  Those
    writes have no sequence number yet and are above ``max_seq``, so everything else is cut before.
    """
    parts: list[Rows] = []
    for table in view.tables:
        rows = table.parts(key_range)
        if view.own is not None and table is not view.own and plan.max_seq is not None:
            rows = [cut for part in rows if len(cut := rows_up_to(part, plan.max_seq))]
        parts += rows
    return parts


def tree_sources(view: "ReadView", plan: ScanPlan, part: KeyRange, tree: Tree) -> list[RowSource]:
    """L0s and runs of one tree, newest first."""
    l0 = [view_ for view_ in tree.l0 if not view_.effective_range.intersect(part).is_empty]
    max_seq = view.manifest.last_l0_seq  # newer ones in SSTs are invisible (docs/format.md 4.2)
    if view.own is not None and plan.max_seq is not None:
        max_seq = Seq(min(max_seq, plan.max_seq))
    options = SourceOptions(
        max_seq=max_seq,
        prefix=plan.prefix,
        read_ahead=view.options.read_ahead,
        keeps=plan.cache_blocks,
    )
    if plan.limit is not None:
        options["rows_wanted"] = plan.limit // (len(l0) + len(tree.compacted) or 1) + _ROWS_SPARE
    size_bytes = view.options.read_ahead_bytes if plan.read_ahead_bytes is None else plan.read_ahead_bytes
    sources: list[RowSource] = [SstSource(view.reader, view_, part, size_bytes, **options) for view_ in l0]
    sources += [RunSource(view.reader, run, part, size_bytes, **options) for run in tree.compacted]
    return sources


def _table_sources(view: "ReadView", plan: ScanPlan) -> list[RowSource]:
    return [RowsSource(rows) for rows in table_rows(view, plan, plan.key_range)]


def _merged(view: "ReadView", plan: ScanPlan, part: KeyRange, tree: Tree) -> RowSource:
    sources = tree_sources(view, plan, part, tree)
    return sources[0] if len(sources) == 1 else MergeSource(sources, view.reader.env)
