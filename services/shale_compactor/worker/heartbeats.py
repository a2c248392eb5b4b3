"""Heartbeats of a worker (docs/reference/protocol.md 6.9)."""

from collections.abc import Callable

from shale.concurrency.signal import WakeEvent
from shale.env import Env
from shale_compactor.worker.compactions_client import CompactionsClient
from shale_compactor.worker.options import WorkerOptions

_JITTER = 0.15
_SLOW_SHARE = 0.2


def next_beat_s(last_s: float, interval_s: float, chance: float) -> float:
    """Return the time of the next heartbeat: a fixed interval after the start of the last one, minus jitter.

    Jitter spreads workers out.  Workers in step would conflict at each heartbeat, and with a slow store the same one
    would lose each time.

    Args:
        last_s: start of the last heartbeat.
        interval_s: maximum time between two starts.
        chance: random number from 0 to 1.
    """
    return last_s + interval_s * (1.0 - _JITTER * chance)


async def run_heartbeats(
    client: CompactionsClient, wake_event: WakeEvent, env: Env, options: Callable[[], WorkerOptions]
) -> None:
    """Write heartbeats until cancelled; with ``persist_every_sst`` also after each SST, at a limited rate.

    While writes are slow and conflict, only the timer counts: more writes would cause more conflicts and delay the
    heartbeats of other workers.  Nothing here waits for a CPU thread, so merges cannot delay it.  Any write that
    includes a heartbeat counts as one.

    Args:
        wake_event: set when a job starts and when it has finished an SST.
    """
    chance = env.rng.random()
    while True:
        interval_s = options().heartbeat_interval_s
        if not client.has_jobs:
            await wake_event.wait_for(interval_s)
            continue
        due_s = next_beat_s(client.last_heartbeat_s, interval_s, chance)
        is_crowded = client.is_contended and client.write_took_s > interval_s * _SLOW_SHARE
        if options().persist_every_sst and client.has_news and not is_crowded:
            due_s = min(due_s, client.last_heartbeat_s + options().persist_interval_s)
        now_s = env.clock.monotonic_s()
        if due_s > now_s:
            await wake_event.wait_for(due_s - now_s)
            continue
        await client.heartbeat()
        chance = env.rng.random()
