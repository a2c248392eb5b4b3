"""Which versions of a key survive a flush or a compaction (docs/protocol.md 7.2).

Per key, from the newest version to the oldest: an expired value becomes a tombstone, an expired operand goes; the row
is kept; the walk goes on to older versions only above the snapshot barrier or behind a merge operand.  At the end the
tombstones at the old end go, if nothing older exists outside the inputs.
"""

from dataclasses import dataclass

from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.source import RowSource
from shale.kernels.rows import Rows
from shale.kernels.rules import OnExpired, Rules


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
