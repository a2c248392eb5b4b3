"""When the next sign of life is due (docs/protocol.md 6.9)."""

from collections.abc import Callable

from shale.env import Env
from shale_compactor.nudge import Nudge
from shale_compactor.worker.ledger import Ledger
from shale_compactor.worker.options import WorkerOptions

_JITTER = 0.15
_SLOW_SHARE = 0.2


def next_beat_s(last_s: float, interval_s: float, chance: float) -> float:
    """The time of the next beat: at a fixed rate from beginning to beginning, whatever a beat takes.

    A little chance spreads workers out.  Those that beat in step would meet each other every time, and with a slow
    store the same one would lose every time.

    Args:
        last_s: when the last beat was begun.
        chance: 0 to 1.
    """
    return last_s + interval_s * (1.0 - _JITTER * chance)


async def beat_forever(ledger: Ledger, nudge: Nudge, env: Env, options: Callable[[], WorkerOptions]) -> None:
    """Beat by the timer until cancelled; with ``persist_every_sst`` also after each SST, not too often.

    While writes take long and meet conflicts, only the timer counts: more of them would only make more conflicts, and
    somebody's heartbeat might be too late.
    Nothing here waits for a CPU thread, so merges cannot hold it up.  A write that carried a heartbeat along counts as
    a beat.

    Args:
        nudge: called when a job begins and when it has finished an SST.
    """
    chance = env.rng.random()
    while True:
        interval_s = options().heartbeat_interval_s
        if not ledger.has_jobs:
            await nudge.wait(interval_s)
            continue
        due_s = next_beat_s(ledger.last_beat_s, interval_s, chance)
        is_crowded = ledger.is_contended and ledger.write_took_s > interval_s * _SLOW_SHARE
        if options().persist_every_sst and ledger.has_news and not is_crowded:
            due_s = min(due_s, ledger.last_beat_s + options().persist_interval_s)
        now_s = env.clock.monotonic_s()
        if due_s > now_s:
            await nudge.wait(due_s - now_s)
            continue
        await ledger.beat()
        chance = env.rng.random()
