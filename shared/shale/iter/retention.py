"""Which versions of a key survive a flush or a compaction (docs/reference/protocol.md 7.2).

Per key, from the newest version to the oldest: an expired value becomes a tombstone, an expired operand is dropped,
any other row is kept.  Older versions follow only above the snapshot barrier or after a merge operand.  At the end the
oldest tombstones are dropped, if nothing older exists outside the inputs.
"""

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.source import RowSource
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_rules import MergeRules, OnExpired
from shale.kernels.rows import Rows
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """``min_seq``: the oldest snapshot (``None``: no snapshot).  ``now_tick``: milliseconds on the database's clock.

    ``drop_tombstones`` is legal only if nothing older for these keys exists elsewhere (docs/reference/protocol.md 7.5).
    """

    min_seq: int | None
    now_tick: int
    drop_tombstones: bool

    def rules(self) -> MergeRules:
        """Return the same as rules of the merge."""
        return MergeRules(
            newest_only=True, min_seq=self.min_seq, now_tick=self.now_tick, drop_tombstones=self.drop_tombstones
        )


def keeps_as_is(rows: Rows, retention: RetentionPolicy) -> bool:
    """Return whether all rows certainly survive unchanged, so that no copy is needed.

    Each key then has one version that neither expires nor is a merge operand.  ``False`` is always allowed, and is the
    result without kernels.

    Args:
        rows: by key, then seq descending.
        retention: the rules that would be applied.
    """
    if retention.drop_tombstones or not use_kernels():
        return False
    from shale.kernels.sort import is_ascending

    return not (rows.flags & (FLAG_EXPIRE_TS | FLAG_MERGE)).any() and is_ascending(rows)


class RetentionSource:
    """The rows of one source that retention keeps."""

    def __init__(
        self, source: RowSource, retention: RetentionPolicy, env: Env, on_expired: OnExpired | None = None
    ) -> None:
        self._filter = MergeFilterSource([source], retention.rules(), env, on_expired, low_memory=True)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._filter.next()


def without_old_tombstones(source: RowSource, env: Env) -> RowSource:
    """Return the rows without the oldest tombstones of each key, for a stage after retention."""
    return MergeFilterSource([source], MergeRules(drop_tombstones=True), env, low_memory=True)
