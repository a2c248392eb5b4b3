"""Visible rows: per key the newest version at or below a sequence number, without deleted keys."""

from collections.abc import Sequence

import numpy as np

from shale.env import Env
from shale.errors import MergeOperatorMissing
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.merge_operator import MergeOperandSource, MergeOperator
from shale.iter.source import RowSource
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import Rows
from shale.types import FLAG_MERGE


class VisibleSource:
    """One row per visible key, all of them values.

    Expired rows are returned (docs/reference/protocol.md 7.3), unless
    ``now_tick`` is given.

    Args:
        sources: in order of precedence.
        max_seq: rows above it are invisible; ``None``: all are visible.
        operator: folds merge operands onto their base.
        now_tick: values that have expired by then hide their keys, and expired operands do not count.
        env: where merging runs.

    Raises:
        MergeOperatorMissing: from ``next``, if a row is an operand and there is no operator.
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
        rules = MergeRules(newest_only=True, max_seq=max_seq, now_tick=now_tick, drop_tombstones=True)
        self._source = fold_operands(MergeFilterSource(sources, rules, env), operator, env)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._source.next()


def fold_operands(source: RowSource, operator: MergeOperator | None, env: Env) -> RowSource:
    """Return a source with one value per key; arguments and errors are those of ``VisibleSource``."""
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
