"""Which versions of a key survive a flush or a compaction (docs/protocol.md 7.2).

Per key, from the newest version to the oldest: an expired value becomes a tombstone, an expired operand goes; the row
is kept; the walk goes on to older versions only above the snapshot barrier or behind a merge operand.  At the end the
tombstones at the old end go, if nothing older exists outside the inputs.
"""

from dataclasses import dataclass

from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.source import RowSource
from shale.kernels.choice import use_kernels
from shale.kernels.rows import Rows
from shale.kernels.rules import OnExpired, Rules
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """``min_seq``: the oldest snapshot (``None``: no snapshot).  ``now_tick``: milliseconds on the database's clock.

    ``drop_tombstones`` is legal only if nothing older for these keys exists elsewhere (docs/protocol.md 7.5).
    """

    min_seq: int | None
    now_tick: int
    drop_tombstones: bool

    def rules(self) -> Rules:
        """The same for the merging loop."""
        return Rules(
            newest_only=True, min_seq=self.min_seq, now_tick=self.now_tick, drop_tombstones=self.drop_tombstones
        )


def keeps_as_is(rows: Rows, retention: Retention) -> bool:
    """Whether all rows surely survive unchanged, so that nobody need copy them: each key has one version, which
    neither expires nor is a merge operand.  May be ``False`` where they do; always without kernels.

    Args:
        rows: by key, then seq descending.
        retention: what would be applied.
    """
    if retention.drop_tombstones or not use_kernels(rows.size_bytes):
        return False
    from shale.kernels.sort import is_ascending

    return not (rows.flags & (FLAG_EXPIRE_TS | FLAG_MERGE)).any() and is_ascending(rows)


class RetentionSource:
    """The rows of one source that survive."""

    def __init__(self, source: RowSource, retention: Retention, env: Env, on_expired: OnExpired | None = None) -> None:
        self._fused = Fused([source], retention.rules(), env, on_expired, is_frugal=True)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        return await self._fused.next()


def without_old_tombstones(source: RowSource, env: Env) -> RowSource:
    """Rows without the tombstones at the old end of each key, for what comes after retention."""
    return Fused([source], Rules(drop_tombstones=True), env, is_frugal=True)
