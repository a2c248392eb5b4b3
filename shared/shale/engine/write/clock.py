"""The database's clock: commit times never go back (docs/reference/protocol.md 4.4)."""

import anyio

from shale.env import Env
from shale.errors import InvalidClockTick

_WAIT_MAX_S = 10.0


class DbClock:
    """Wall time in milliseconds that never falls below ``last_tick``, the newest commit time of the database."""

    __slots__ = ("last_tick", "now_ms", "wall_s")

    def __init__(self, env: Env, last_tick: int) -> None:
        self.now_ms = env.clock.now_ms
        self.wall_s = env.clock.wall_s
        self.last_tick = last_tick

    async def tick(self) -> int:
        """Return the time of a commit that happens now; wait for a wall clock that is a little slow.

        Raises:
            InvalidClockTick: the wall clock is far below the newest commit time.
        """
        now = self.now_ms()
        if now < self.last_tick:
            await anyio.sleep(min(_WAIT_MAX_S, 2 * (self.last_tick - now) / 1000))
            now = self.now_ms()
            if now < self.last_tick:
                raise InvalidClockTick(f"the clock says {now} ms, but the database has seen {self.last_tick} ms")
        self.last_tick = now
        return now
