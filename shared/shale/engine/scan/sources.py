"""The sources that a scan merges: memtables, L0s and sorted runs of every tree in its range."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from shale.concurrency.read_ahead import ReadAhead
from shale.engine.read.read_options import table_rows
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.plan import ScanPlan
from shale.iter.merge import MergeSource
from shale.iter.reverse import ReverseRowsSource, ReverseVisibleSource
from shale.iter.source import RowSource, RowsSource
from shale.iter.visible import VisibleSource, fold_operands
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import Rows
from shale.sst.row_search import rows_up_to
from shale.sst.source import CachedBlockSource, CachedOptions, SourceOptions, SstViewsSource
from shale.sst.view_chains import disjoint_chains
from shale.types import UNBOUNDED, KeyRange, Seq, SstView, Tree, excluded, included

PartOfTree: TypeAlias = tuple[KeyRange, Tree]
"""The keys of the scan that a tree can hold, and the tree."""
_ROWS_SPARE = 64
"""Rows beyond its even share of a limited scan that each source reads."""


def visible_source(view: SuperVersion, plan: ScanPlan) -> RowSource:
    """Return the visible rows of a range, one per key.

    Rows ascend by key inside a chunk; chunks descend if the scan is reversed.  A scan without a limit merges encoded
    blocks.  A limited scan merges decoded columns, which the cache serves.
    """
    if plan.reverse:
        pieces = reversed(list(_segment_parts(view, plan.key_range)))
        return SequentialSource(partial(_reverse_source, view, plan, part, trees) for part, trees in pieces)
    sources: list[RowSource] = [RowsSource(rows) for rows in _table_rows(view, plan, plan.key_range)]
    root, segments = _trees(view, plan.key_range)
    if len(segments) < 2 and plan.expected_rows is None and use_kernels():
        return fold_operands(
            _visible_blocks(view, plan, [*root, *segments]), view.options.merge_operator, view.reader.env
        )
    for part, tree in root if len(segments) > 1 else [*root, *segments]:
        sources += _tree_sources(view, plan, part, tree)
    if len(segments) > 1:
        sources.append(SequentialSource(partial(_merged, view, plan, part, tree) for part, tree in segments))
    return _visible(VisibleSource, sources, view, plan)


class SequentialSource:
    """Sources with disjoint keys, one after the other; each is opened when the one before has ended."""

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


def _table_rows(view: SuperVersion, plan: ScanPlan, key_range: KeyRange) -> list[Rows]:
    """Return the rows of memtables in a range.

    The merge drops versions above ``max_seq``.  Uncommitted writes of a transaction have sequence numbers above
    ``max_seq`` and must stay, so with them the other tables are cut here.
    """
    parts: list[Rows] = []
    for table in view.tables:
        rows = table_rows(table, key_range)
        if view.own is not None and table is not view.own and plan.max_seq is not None:
            rows = [cut for part in rows if len(cut := rows_up_to(part, plan.max_seq))]
        parts += rows
    return parts


def _visible_blocks(view: SuperVersion, plan: ScanPlan, trees: list[PartOfTree]) -> RowSource:
    from shale.iter.visible_blocks import Visibility, VisibleBlocksSource

    options = CachedOptions(
        prefix=plan.prefix,
        read_ahead=view.options.read_ahead,
        cache_blocks=plan.cache_blocks,
        fetch_tasks=plan.fetch_tasks,
        room=plan.room,
    )
    size_bytes = _read_ahead_bytes(view, plan)
    return VisibleBlocksSource(
        _table_rows(view, plan, plan.key_range),
        [
            CachedBlockSource(view.reader, views, part, size_bytes, **options)
            for part, tree in trees
            for views in (*disjoint_chains(_l0_in(tree, part)), *(run.ssts for run in tree.compacted))
        ],
        view.reader.env,
        visibility=Visibility(
            max_seq=plan.max_seq if view.own is None else None,
            max_seq_of_blocks=_max_seq_of_ssts(view, plan),
            now_tick=plan.now_ms,
        ),
        reads_all=plan.reads_all,
        on_corrupt=view.reader.count_corruption,
    )


def _max_seq_of_ssts(view: SuperVersion, plan: ScanPlan) -> Seq:
    """Return the bound above which rows in SSTs are invisible (docs/reference/format.md 4.2)."""
    if view.own is not None and plan.max_seq is not None:
        return Seq(min(view.manifest.last_l0_seq, plan.max_seq))
    return view.manifest.last_l0_seq


def _l0_in(tree: Tree, part: KeyRange) -> list[SstView]:
    return [each for each in tree.l0 if not each.effective_range.intersect(part).is_empty]


def _read_ahead_bytes(view: SuperVersion, plan: ScanPlan) -> int:
    return view.options.read_ahead_bytes if plan.read_ahead_bytes is None else plan.read_ahead_bytes


def _tree_sources(view: SuperVersion, plan: ScanPlan, part: KeyRange, tree: Tree) -> list[RowSource]:
    """Return the L0s and runs of one tree, newest first, which share the rows of a limited scan evenly."""
    l0 = disjoint_chains(_l0_in(tree, part))
    if plan.expected_rows is not None:
        levels = len(l0) + len(tree.compacted)
        plan = plan._replace(expected_rows=plan.expected_rows // (levels or 1) + _ROWS_SPARE)
    return _sources_of(view, plan, part, [*l0, *(run.ssts for run in tree.compacted)], view.options.read_ahead)


def level_sources(view: SuperVersion, plan: ScanPlan, part: KeyRange, tree: Tree) -> list[RowSource]:
    """Return the L0s and runs of one tree, newest first; each expects the rows of the plan."""
    levels = [*([each] for each in _l0_in(tree, part)), *(run.ssts for run in tree.compacted)]
    return _sources_of(view, plan, part, levels, None)


def _sources_of(
    view: SuperVersion,
    plan: ScanPlan,
    part: KeyRange,
    levels: Sequence[Sequence[SstView]],
    read_ahead: ReadAhead | None,
) -> list[RowSource]:
    options = SourceOptions(
        max_seq=_max_seq_of_ssts(view, plan),
        prefix=plan.prefix,
        read_ahead=read_ahead,
        cache_blocks=plan.cache_blocks,
        reverse=plan.reverse,
        expected_rows=plan.expected_rows,
        fetch_tasks=plan.fetch_tasks,
        room=plan.room,
    )
    size_bytes = _read_ahead_bytes(view, plan)
    return [SstViewsSource(view.reader, views, part, size_bytes, **options) for views in levels]


def _merged(view: SuperVersion, plan: ScanPlan, part: KeyRange, tree: Tree) -> RowSource:
    sources = _tree_sources(view, plan, part, tree)
    return sources[0] if len(sources) == 1 else MergeSource(sources, view.reader.env)


def _reverse_source(view: SuperVersion, plan: ScanPlan, part: KeyRange, trees: list[PartOfTree]) -> RowSource:
    """Return the visible rows of one part of the range, from its end."""
    sources: list[RowSource] = [ReverseRowsSource(rows) for rows in _table_rows(view, plan, part)]
    for of_tree, tree in trees:
        sources += _tree_sources(view, plan, of_tree, tree)
    return _visible(ReverseVisibleSource, sources, view, plan)


def _visible(
    kind: type[VisibleSource | ReverseVisibleSource], sources: list[RowSource], view: SuperVersion, plan: ScanPlan
) -> RowSource:
    """Return the source that reduces the versions of each key to the visible row."""
    return kind(
        sources,
        plan.max_seq if view.own is None else None,
        view.reader.env,
        operator=view.options.merge_operator,
        now_tick=plan.now_ms,
    )


def _segment_parts(view: SuperVersion, key_range: KeyRange) -> Iterator[tuple[KeyRange, list[PartOfTree]]]:
    """Yield ascending parts that cover the range: one per segment, and one per gap between segments.

    The gaps matter because memtables may hold keys of segments that have no tree yet.
    """
    root, segments = _trees(view, key_range)
    if len(segments) < 2:
        yield key_range, [*root, *segments]
        return
    rest = key_range
    for part, tree in segments:
        before = rest.intersect(KeyRange(UNBOUNDED, excluded(part.first_key or b"")))
        if not before.is_empty:
            yield before, _cut(root, before)
        yield part, [*_cut(root, part), (part, tree)]
        if part.end_key is None:
            return
        rest = rest.intersect(KeyRange(included(part.end_key), UNBOUNDED))
    if not rest.is_empty:
        yield rest, _cut(root, rest)


def _trees(view: SuperVersion, key_range: KeyRange) -> tuple[list[PartOfTree], list[PartOfTree]]:
    """Return the root tree, if it is in use, and the segments by prefix, whose keys are disjoint."""
    trees = list(view.trees.in_range(key_range))
    root = [(part, tree) for prefix, part, tree in trees if not prefix]
    return root, [(part, tree) for prefix, part, tree in trees if prefix]


def _cut(trees: list[PartOfTree], key_range: KeyRange) -> list[PartOfTree]:
    return [(part.intersect(key_range), tree) for part, tree in trees]
