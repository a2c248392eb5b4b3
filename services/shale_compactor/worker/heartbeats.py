"""When the next sign of life is due (docs/protocol.md 6.9)."""

from collections.abc import Callable

import anyio

from shale.env import Clock
from shale_compactor.nudge import Nudge
from shale_compactor.worker.ledger import Ledger

SECONDS_BETWEEN_SST_BEATS = 1.0


def next_beat_s(last_s: float, took_s: float, interval_s: float) -> float:
    """The time of the next beat.

    Beats begin at a fixed rate, whatever a beat takes.  One that took long shows a slow store, or others who write at
    the same time; the next one then begins earlier by as much, though at most by half an interval, so that a beat
    that has to be repeated still lands in time.

    Args:
        last_s: when the last heartbeat that was accepted was begun, or the last try.
        took_s: how long it was under way.
    """
    return last_s + interval_s - min(max(took_s, 0.0), interval_s / 2)


async def beat_forever(ledger: Ledger, sst_finished: Nudge, clock: Clock, interval_s: Callable[[], float]) -> None:
    """Beat by the timer until cancelled, and at once when told of a finished SST, at most one a second.

    Nothing here waits for a CPU thread, so merges cannot hold it up.  A write that carried a heartbeat along counts as
    a beat.
    """
    last_s, took_s = clock.monotonic_s(), 0.0
    while True:
        last_s = max(last_s, ledger.last_write_s)
        due_s = next_beat_s(last_s, took_s, interval_s())
        if await sst_finished.wait(max(0.0, due_s - clock.monotonic_s())):
            soonest_s = max(last_s, ledger.last_write_s) + SECONDS_BETWEEN_SST_BEATS
            await anyio.sleep(max(0.0, min(due_s, soonest_s) - clock.monotonic_s()))
            if not ledger.has_news and clock.monotonic_s() < due_s:
                continue  # another write has published it
        elif ledger.last_write_s > last_s:
            continue
        started_s = clock.monotonic_s()
        await ledger.beat()
        last_s, took_s = started_s, clock.monotonic_s() - started_s
