"""Merge and retention in one pass over columns."""

from collections.abc import Sequence

from shale.env import Env
from shale.iter.plain import fuse_plain
from shale.iter.source import RowSource, RowsSource, drain
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.kernels.rules import Rules


class Fused:
    """Sources merged by (key, sequence number descending), reduced to what the rules keep.

    The order of the sources is their precedence for equal key and sequence number.
    """

    def __init__(self, sources: Sequence[RowSource], rules: Rules, env: Env) -> None:
        self._sources = sources
        self._rules = rules
        self._env = env
        self._merged: RowSource | None = None

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        if self._merged is None:
            inputs = [entries_from_rows(concat_rows(await drain(source))) for source in self._sources]
            self._merged = RowsSource(rows_from_entries(list(fuse_plain(inputs, self._rules))))
        return await self._merged.next()
