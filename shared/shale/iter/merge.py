"""Merges several sources into one, by key ascending and sequence number descending (docs/reference/protocol.md 7.1)."""

from collections.abc import Sequence

from shale.env import Env
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.source import RowSource
from shale.kernels.merge_rules import KEEP_ALL
from shale.kernels.rows import Rows


class MergeSource:
    """All rows of all sources; of rows with equal key and sequence number, the one of the first source."""

    def __init__(self, sources: Sequence[RowSource], env: Env, *, low_memory: bool = False) -> None:
        self._merge = MergeFilterSource(sources, KEEP_ALL, env, low_memory=low_memory)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._merge.next()
