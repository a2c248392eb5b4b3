"""The stages between the inputs of a compaction or flush and its SST builder (docs/reference/protocol.md 6.11, 7)."""

from collections.abc import Callable, Sequence

from shale.env import Env
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.merge_operator import MergeOperandSource, MergeOperator, OnMergeFailure
from shale.iter.retention import RetentionPolicy, RetentionSource
from shale.iter.source import RowSource
from shale.kernels.merge_rules import MergeRules, OnExpired


def compaction_source(
    sources: Sequence[RowSource],
    *,
    retention: RetentionPolicy,
    operator: MergeOperator | None,
    env: Env,
    on_expired: OnExpired | None = None,
    on_folded: Callable[[int], None] = lambda _count: None,
    on_merge_failure: OnMergeFailure = lambda _count, _error: None,
) -> RowSource:
    """Merge ``sources``, in order of precedence, and keep what retention keeps.

    Without an operator merge operands pass: retention keeps all of them and the first value below
    (docs/reference/protocol.md 7.4).  Operands on which the operator fails stay too, with the rows below them: one
    unreadable key must not stop the compaction of the others.
    """
    if operator is None:
        return MergeFilterSource(sources, retention.rules(), env, on_expired, low_memory=True)
    # The merge drops hidden rows first, so the operator does not see them.
    needed = MergeRules(newest_only=True, min_seq=retention.min_seq)
    merged = MergeFilterSource(sources, needed, env, low_memory=True)
    folded = MergeOperandSource(
        merged, operator, retention.min_seq, env, on_folded=on_folded, on_merge_failure=on_merge_failure
    )
    return RetentionSource(folded, retention, env, on_expired)
