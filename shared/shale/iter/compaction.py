"""Everything between the inputs of a compaction (or flush) and its SST builder (docs/protocol.md 6.11, 7)."""

from collections.abc import Callable, Sequence

from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.merge_operator import MergeOperandSource, MergeOperator
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
) -> RowSource:
    """Merge ``sources`` (in order of precedence) and keep what retention keeps, in one pass if there is no operator.

    Without an operator merge operands pass: retention keeps all of them and the first value below (docs/protocol.md
    7.4), so nothing is lost.
    """
    if operator is None:
        return Fused(sources, retention.rules(), env, on_expired, is_frugal=True)
    # What a newer value hides is gone before the operator sees it: a key that it cannot fold is cured by a put.
    needed = Rules(newest_only=True, min_seq=retention.min_seq)
    merged = Fused(sources, needed, env, is_frugal=True)
    folded = MergeOperandSource(merged, operator, retention.min_seq, env, on_folded=on_folded)
    return RetentionSource(folded, retention, env, on_expired)
