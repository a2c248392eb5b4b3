"""What a scan merges: memtables, L0s and sorted runs of every tree that the range touches."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from shale.iter.merge import MergeSource
from shale.iter.source import RowSource, RowsSource
from shale.iter.visible import VisibleSource
from shale.kernels.rows import Rows
from shale.sst.source import RunSource, SourceOptions, SstSource
from shale.types import KeyRange, Tree

if TYPE_CHECKING:
    from shale.engine.read_view import ReadView

_ROWS_SPARE = 64
"""A source is asked for so many rows beyond its even share of what a limited scan needs."""


def visible_source(
    view: "ReadView", key_range: KeyRange, *, max_seq: int | None, prefix: bytes | None, limit: int | None
) -> RowSource:
    """The visible rows of a range, one per key."""
    sources: list[RowSource] = [RowsSource(rows) for table in view.tables for rows in table.parts(key_range)]
    trees = list(view.trees_in(key_range))
    of_tree = partial(_tree_sources, view, prefix=prefix, limit=limit)
    if len(trees) == 1:
        sources += of_tree(*trees[0])
    elif trees:
        sources.append(ChainSource(partial(_merged, view, of_tree, part, tree) for part, tree in trees))
    return VisibleSource(sources, max_seq, view.reader.env, operator=view.options.merge_operator)


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


def _merged(
    view: "ReadView", of_tree: Callable[[KeyRange, Tree], list[RowSource]], part: KeyRange, tree: Tree
) -> RowSource:
    sources = of_tree(part, tree)
    return sources[0] if len(sources) == 1 else MergeSource(sources, view.reader.env)


def _tree_sources(
    view: "ReadView", part: KeyRange, tree: Tree, *, prefix: bytes | None, limit: int | None
) -> list[RowSource]:
    l0 = [view_ for view_ in tree.l0 if not view_.effective_range.intersect(part).is_empty]
    options = SourceOptions(max_seq=view.manifest.last_l0_seq, prefix=prefix, read_ahead=view.options.read_ahead)
    if limit is not None:
        options["rows_wanted"] = limit // (len(l0) + len(tree.compacted) or 1) + _ROWS_SPARE
    read_ahead_bytes = view.options.read_ahead_bytes
    sources: list[RowSource] = [SstSource(view.reader, view_, part, read_ahead_bytes, **options) for view_ in l0]
    sources += [RunSource(view.reader, run, part, read_ahead_bytes, **options) for run in tree.compacted]
    return sources
