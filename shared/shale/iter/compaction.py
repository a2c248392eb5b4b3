"""Everything between the inputs of a compaction (or flush) and its SST builder (docs/protocol.md 6.11, 7)."""

from collections.abc import Callable, Sequence

from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.merge_operator import MergeOperandSource, MergeOperator, OnRefused
from shale.iter.retention import Retention, RetentionSource
from shale.iter.source import RowSource
from shale.kernels.rules import OnExpired, Rules


def compaction_source(
    sources: Sequence[RowSource],
    *,
    retention: Retention,
    operator: MergeOperator | None,
    env: Env,
    on_expired: OnExpired | None = None,
    on_folded: Callable[[int], None] = lambda _count: None,
    on_refused: OnRefused = lambda _count, _error: None,
) -> RowSource:
    """Merge ``sources`` (in order of precedence) and keep what retention keeps, in one pass if there is no operator.

    Without an operator merge operands pass: retention keeps all of them and the first value below (docs/protocol.md
    7.4), so nothing is lost.  Operands that the operator refuses stay for the same reason, with what lies below them:
    one key that cannot be read must not keep the others from being compacted.
    """
    if operator is None:
        return Fused(sources, retention.rules(), env, on_expired, is_frugal=True)
    # What a newer value hides is gone before the operator sees it.
    needed = Rules(newest_only=True, min_seq=retention.min_seq)
    merged = Fused(sources, needed, env, is_frugal=True)
    folded = MergeOperandSource(merged, operator, retention.min_seq, env, on_folded=on_folded, on_refused=on_refused)
    return RetentionSource(folded, retention, env, on_expired)
