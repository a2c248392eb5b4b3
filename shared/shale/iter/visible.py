"""What a reader sees: per key the newest version at or below a sequence number, without deleted keys."""

from collections.abc import Sequence

import numpy as np

from shale.env import Env
from shale.errors import MergeOperatorMissing
from shale.iter.fused import Fused
from shale.iter.merge_operator import MergeOperandSource, MergeOperator
from shale.iter.source import RowSource
from shale.kernels.rows import Rows
from shale.kernels.rules import Rules
from shale.types import FLAG_MERGE


class VisibleSource:
    """One row per visible key, all of them values.

    Expired rows are still returned (docs/protocol.md 7.3), unless ``now_tick`` says by when they must not have expired.

    Args:
        sources: in order of precedence.
        max_seq: rows above it are invisible; ``None``: all are visible.
        operator: folds merge operands onto their base.
        now_tick: values that have expired by then hide their keys, and operands are as if they were not there.
        env: where merging runs.

    Raises:
        MergeOperatorMissing: from ``next``, when it meets an operand and there is no operator.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        max_seq: int | None,
        env: Env,
        *,
        operator: MergeOperator | None = None,
        now_tick: int | None = None,
    ) -> None:
        rules = Rules(newest_only=True, max_seq=max_seq, now_tick=now_tick, drop_tombstones=True)
        self._source = folded(Fused(sources, rules, env), operator, env)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._source.next()


def folded(source: RowSource, operator: MergeOperator | None, env: Env) -> RowSource:
    """The newest versions of each key as one value each.  Arguments and errors as for ``VisibleSource``."""
    if operator is None:
        return _OnlyValues(source)
    return MergeOperandSource(source, operator, None, env, mix_expiry=True)


class _OnlyValues:
    def __init__(self, source: RowSource) -> None:
        self._source = source

    async def next(self) -> Rows | None:
        rows = await self._source.next()
        if rows is not None and np.any(rows.flags & np.uint8(FLAG_MERGE)):
            raise MergeOperatorMissing("the database holds merge operands: open it with a merge operator")
        return rows
