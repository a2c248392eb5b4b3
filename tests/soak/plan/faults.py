"""The faults of a run, drawn from its seed: what, where, when, for how long."""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

WRITERS = ("writer-a", "writer-b")
READERS = ("reader-a", "reader-b")
OTHERS = ("compactor", "worker", "gc")
DAEMONS = (*WRITERS, *READERS, *OTHERS)
STORE, CLIENTS = "store", "clients"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, and how it is drawn."""

    name: str
    targets: tuple[str, ...]
    weight: int
    duration_s: tuple[float, float] = (0.0, 0.0)
    amount: tuple[float, float] = (0.0, 0.0)
    needs: str = ""
    """What the machine must allow: ``namespaces``, ``tmpfs``, ``wheel`` or ``previous``."""


PROXY_SHARE = (0.05, 0.4)
"""Of the requests that a fault of the store affects."""
KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill", (*DAEMONS, *WRITERS), 10),
        Kind("freeze", (*DAEMONS, *WRITERS), 6, (1.0, 20.0)),
        Kind("clock-step", DAEMONS, 4, (2.0, 15.0), (-20.0, 20.0)),
        Kind("stop", DAEMONS, 3),
        Kind("store-errors", (STORE,), 3, (2.0, 12.0), PROXY_SHARE),
        Kind("store-slow-down", (STORE,), 2, (2.0, 12.0), PROXY_SHARE),
        Kind("store-reset-after", (STORE,), 4, (2.0, 12.0), PROXY_SHARE),
        Kind("store-truncated", (STORE,), 3, (2.0, 12.0), PROXY_SHARE),
        Kind("store-stalls", (STORE,), 3, (2.0, 12.0), (0.02, 0.2)),
        Kind("store-duplicates", (STORE,), 4, (2.0, 12.0), PROXY_SHARE),
        Kind("store-old-lists", (STORE,), 2, (2.0, 12.0), PROXY_SHARE),
        Kind("partition", DAEMONS, 4, (2.0, 20.0), needs="namespaces"),
        Kind("partition-from-store", (*DAEMONS, *WRITERS), 4, (2.0, 20.0), needs="namespaces"),
        Kind("partition-from-clients", (*WRITERS, *READERS), 2, (2.0, 20.0), needs="namespaces"),
        Kind("partition-from-standby", WRITERS, 2, (2.0, 20.0), needs="namespaces"),
        Kind("full-store", (STORE,), 2, (2.0, 10.0), needs="tmpfs"),
        Kind("full-disk-cache", READERS, 2, (5.0, 20.0), needs="tmpfs"),
        Kind("other-version", DAEMONS, 4, needs="previous"),
        Kind("wheel-writes", ("wheel",), 4, (3.0, 10.0), needs="wheel"),
        Kind("wheel-writes-and-compacts", ("wheel",), 2, (4.0, 12.0), needs="wheel"),
        Kind("rival-writer", WRITERS, 3),
    )
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; it begins ``at_s`` seconds after the load."""

    number: int
    kind: str
    target: str
    at_s: float
    duration_s: float
    amount: float

    def __str__(self) -> str:
        """Return one line for the log."""
        lasts = f" for {self.duration_s:.1f} s" if self.duration_s else ""
        amount = f" ({self.amount:+.2f})" if self.amount else ""
        return f"{self.kind} of {self.target}{lasts}{amount}"


def possible_kinds(
    names: Collection[str] | None, abilities: Collection[str], *, absent: Collection[str] = ()
) -> list[Kind]:
    """Return the kinds that are wanted and that the machine allows; ``absent`` nodes are no target.

    Raises:
        ValueError: there is no kind of a name.
    """
    unknown = sorted(set(names or ()) - set(KINDS))
    if unknown:
        raise ValueError(f"--faults: there is no {unknown[0]}; the kinds are {', '.join(KINDS)}")
    wanted = [kind for kind in KINDS.values() if names is None or kind.name in names]
    allowed = [kind for kind in wanted if not kind.needs or kind.needs in abilities]
    return [replace(kind, targets=tuple(each for each in kind.targets if each not in absent)) for kind in allowed]


def draw_faults(seed: int, seconds: float, kinds: Sequence[Kind], *, pause_s: tuple[float, float]) -> list[Fault]:
    """Draw the faults of a run.

    Faults may overlap: the next one begins after a pause that does not depend on the duration of the last one.  No two
    faults of one kind overlap, and in the last part of a run none begins, so that everything can recover.

    Args:
        seed: the same seed draws the same faults.
        seconds: how long the load runs.
        kinds: the kinds to draw from; each comes before any comes again.
        pause_s: the shortest and the longest time between two begins, in seconds.
    """
    rng = random.Random(seed)
    found: list[Fault] = []
    busy_until: dict[str, float] = {}
    at_s = rng.uniform(*pause_s)
    waiting = _shuffled(kinds, rng)
    last_s = seconds * 0.9
    while at_s < last_s and kinds:
        free = [kind for kind in waiting if busy_until.get(kind.name, 0.0) <= at_s]
        if free:
            kind = free[0]
            waiting.remove(kind)
            duration_s = min(rng.uniform(*kind.duration_s), max(0.5, last_s - at_s))
            found.append(
                Fault(len(found), kind.name, rng.choice(kind.targets), at_s, duration_s, rng.uniform(*kind.amount))
            )
            busy_until[kind.name] = at_s + duration_s
        else:
            waiting = _shuffled(kinds, rng)
        at_s += rng.uniform(*pause_s)
        waiting = waiting or _shuffled(kinds, rng)
    return found


def clock_skew_s(faults: Iterable[Fault]) -> float:
    """Return how far these faults set the clock of a daemon from the right time, at most."""
    return max((abs(fault.amount) for fault in faults if fault.kind == "clock-step"), default=0.0)


def _shuffled(kinds: Sequence[Kind], rng: random.Random) -> list[Kind]:
    """Return the kinds, each as often as its weight says, with every kind once at the begin."""
    once = list(kinds)
    more = [kind for kind in kinds for _ in range(kind.weight - 1)]
    rng.shuffle(once)
    rng.shuffle(more)
    return once + more
