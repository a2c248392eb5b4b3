"""Several sources as one, by key ascending and sequence number descending (docs/protocol.md 7.1)."""

from collections.abc import Sequence

from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.source import RowSource
from shale.kernels.rows import Rows
from shale.kernels.rules import KEEP_ALL


class MergeSource:
    """All rows of all sources; of two with equal key and sequence number, the one of the earlier source."""

    def __init__(self, sources: Sequence[RowSource], env: Env, *, is_frugal: bool = False) -> None:
        self._fused = Fused(sources, KEEP_ALL, env, is_frugal=is_frugal)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._fused.next()
