"""What a scan merges: memtables, L0s and sorted runs of every tree that the range touches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from shale.iter.backward import BackwardRows, BackwardVisible
from shale.iter.merge import MergeSource
from shale.iter.source import RowSource, RowsSource
from shale.iter.visible import VisibleSource, folded
from shale.kernels.choice import are_loaded, load_kernels, use_kernels, wants_loading
from shale.kernels.rows import Rows
from shale.sst.row_search import rows_up_to
from shale.sst.source import CachedBlockSource, CachedOptions, RunSource, SourceOptions, SstSource
from shale.types import UNBOUNDED, KeyRange, Seq, SstView, Tree, excluded, included

if TYPE_CHECKING:
    from shale.engine.read_view import ReadView

PartOfTree: TypeAlias = tuple[KeyRange, Tree]
"""A tree, and the keys of the scan that it can hold."""
_ROWS_SPARE = 64
"""A source is asked for so many rows beyond its even share of what a limited scan needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What a scan wants.

    ``max_seq``: versions above are invisible (``None``: none is).  ``prefix``: all keys in the range begin with it.
    ``backward``: from the greatest key down.  ``rows_wanted``: how many rows are probably taken; ``None``: many.
    ``now_ms``: rows that have expired by then are invisible.  ``read_ahead_bytes``: of one request, ``None``: what the
    handle says.  ``cache_blocks``: whether short reads go into the cache.  ``is_whole``: all rows are taken.
    """

    key_range: KeyRange
    max_seq: int | None = None
    prefix: bytes | None = None
    backward: bool = False
    rows_wanted: int | None = None
    now_ms: int | None = None
    read_ahead_bytes: int | None = None
    cache_blocks: bool = True
    is_whole: bool = False


def visible_source(view: "ReadView", plan: ScanPlan) -> RowSource:
    """The visible rows of a range, one per key.

    Rows of a chunk ascend by key, also where chunks descend because the scan goes backward.  Scans that may be long
    read rows where they lie in their blocks; who wants some rows only goes through columns, which the cache serves.
    """
    if plan.backward:
        pieces = reversed(list(_pieces(view, plan.key_range)))
        return ChainSource(partial(_backward_source, view, plan, part, trees) for part, trees in pieces)
    sources: list[RowSource] = [RowsSource(rows) for rows in _table_rows(view, plan, plan.key_range)]
    root, segments = _trees(view, plan.key_range)
    if len(segments) < 2 and plan.rows_wanted is None and use_kernels(0):
        return folded(_visible_blocks(view, plan, [*root, *segments]), view.options.merge_operator, view.reader.env)
    for part, tree in root if len(segments) > 1 else [*root, *segments]:
        sources += _tree_sources(view, plan, part, tree)
    if len(segments) > 1:
        sources.append(ChainSource(partial(_merged, view, plan, part, tree) for part, tree in segments))
    return VisibleSource(
        sources,
        plan.max_seq if view.own is None else None,
        view.reader.env,
        operator=view.options.merge_operator,
        now_tick=plan.now_ms,
    )


async def prepare_kernels(view: "ReadView", plan: ScanPlan) -> None:
    """Load the kernels, in a thread, for a scan that is long for certain: without them it would begin on a detour."""
    if plan.backward or plan.rows_wanted is not None or are_loaded():
        return
    size_bytes = 0
    for _, part, tree in view.trees_in(plan.key_range):
        whole = [each.sst for each in tree.views() if each.effective_range.intersect(part) == each.effective_range]
        size_bytes += sum(sst.info.data_len for sst in whole)
    if wants_loading(size_bytes):
        await view.reader.env.cpu.run(load_kernels)


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


def _table_rows(view: "ReadView", plan: ScanPlan, key_range: KeyRange) -> list[Rows]:
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


def _visible_blocks(view: "ReadView", plan: ScanPlan, trees: list[PartOfTree]) -> RowSource:
    from shale.iter.visible_blocks import VisibleBlocks

    options = CachedOptions(prefix=plan.prefix, read_ahead=view.options.read_ahead, keeps=plan.cache_blocks)
    size_bytes = _read_bytes(view, plan)
    return VisibleBlocks(
        _table_rows(view, plan, plan.key_range),
        [
            CachedBlockSource(view.reader, views, part, size_bytes, **options)
            for part, tree in trees
            for views in (*((each,) for each in _l0_in(tree, part)), *(run.ssts for run in tree.compacted))
        ],
        view.reader.env,
        max_seq=plan.max_seq if view.own is None else None,
        max_seq_of_blocks=_max_seq_of_ssts(view, plan),
        now_tick=plan.now_ms,
        is_whole=plan.is_whole,
        on_corrupt=view.reader.count_damage,
    )


def _max_seq_of_ssts(view: "ReadView", plan: ScanPlan) -> Seq:
    """Newer rows in SSTs are invisible (docs/format.md 4.2)."""
    if view.own is not None and plan.max_seq is not None:
        return Seq(min(view.manifest.last_l0_seq, plan.max_seq))
    return view.manifest.last_l0_seq


def _l0_in(tree: Tree, part: KeyRange) -> list[SstView]:
    return [each for each in tree.l0 if not each.effective_range.intersect(part).is_empty]


def _read_bytes(view: "ReadView", plan: ScanPlan) -> int:
    return view.options.read_ahead_bytes if plan.read_ahead_bytes is None else plan.read_ahead_bytes


def _tree_sources(view: "ReadView", plan: ScanPlan, part: KeyRange, tree: Tree) -> list[RowSource]:
    """L0s and runs of one tree, newest first."""
    l0 = _l0_in(tree, part)
    options = SourceOptions(
        max_seq=_max_seq_of_ssts(view, plan),
        prefix=plan.prefix,
        read_ahead=view.options.read_ahead,
        keeps=plan.cache_blocks,
        backward=plan.backward,
    )
    if plan.rows_wanted is not None:
        options["rows_wanted"] = plan.rows_wanted // (len(l0) + len(tree.compacted) or 1) + _ROWS_SPARE
    size_bytes = _read_bytes(view, plan)
    sources: list[RowSource] = [SstSource(view.reader, view_, part, size_bytes, **options) for view_ in l0]
    sources += [RunSource(view.reader, run, part, size_bytes, **options) for run in tree.compacted]
    return sources


def _merged(view: "ReadView", plan: ScanPlan, part: KeyRange, tree: Tree) -> RowSource:
    sources = _tree_sources(view, plan, part, tree)
    return sources[0] if len(sources) == 1 else MergeSource(sources, view.reader.env)


def _backward_source(view: "ReadView", plan: ScanPlan, part: KeyRange, trees: list[PartOfTree]) -> RowSource:
    """The visible rows of one part of the range, from the end on."""
    sources: list[RowSource] = [BackwardRows(rows) for rows in _table_rows(view, plan, part)]
    for of_tree, tree in trees:
        sources += _tree_sources(view, plan, of_tree, tree)
    return BackwardVisible(
        sources,
        plan.max_seq if view.own is None else None,
        view.reader.env,
        operator=view.options.merge_operator,
        now_tick=plan.now_ms,
    )


def _pieces(view: "ReadView", key_range: KeyRange) -> Iterator[tuple[KeyRange, list[PartOfTree]]]:
    """Parts of the range, ascending, which cover it: those of one segment each, and those between segments.

    Memtables may hold keys of segments that have no tree yet.
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


def _trees(view: "ReadView", key_range: KeyRange) -> tuple[list[PartOfTree], list[PartOfTree]]:
    """The root tree, if it is in use, and the segments by prefix, whose keys are disjoint."""
    trees = list(view.trees_in(key_range))
    root = [(part, tree) for prefix, part, tree in trees if not prefix]
    return root, [(part, tree) for prefix, part, tree in trees if prefix]


def _cut(trees: list[PartOfTree], key_range: KeyRange) -> list[PartOfTree]:
    return [(part.intersect(key_range), tree) for part, tree in trees]
