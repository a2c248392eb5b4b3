"""What all clients share: which process to ask, which key to use, how to record."""

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.soak.history.journal import Journal
from tests.soak.history.operation import Function, Operation, Outcome

GENERATION_S = 15.0
"""Keys of groups, lists and counters change after this time, so that no partition grows without limit."""
REGISTERS, LOCKS, LISTS, MEMBERS, EXPIRING = 24, 3, 4, 8, 4
LIFETIMES_S = (2.0, 8.0, 20.0, 50.0)
"""Of rows that expire.  After a step of the clock by 20 seconds, only the longest says when a row must be there."""
OLD_GENERATIONS = 6
"""Rows that expire are read for so many generations after the last write."""


Lifetime = tuple[Literal["for", "until"], float]
"""Seconds, or a time of the monotonic clock."""


def wall_ms(at: float) -> int:
    """Convert a time of the monotonic clock to milliseconds since 1970."""
    return int((time.time() - time.monotonic() + at) * 1000)


@dataclass(frozen=True, slots=True)
class Address:
    """Where one instance of a daemon listens."""

    instance: str
    http: str
    resp: str


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one request."""

    outcome: Outcome
    value: Any = None
    served_by: str = ""


class Shared:
    """What the sessions of one process have in common."""

    def __init__(self, *, folder: Path, name: str, book: Path, seed: int, pace_s: float, url: str, token: str) -> None:
        self.journal = Journal(folder, name)
        self.folder = folder
        self.book = book
        self.seed = seed
        self.pace_s = pace_s
        self.url = url
        self.token = token
        self.stop = threading.Event()
        self.lock = threading.Lock()

    @classmethod
    def of(cls, config: dict[str, Any], name: str) -> "Shared":
        """Make it from the file that all clients of a run get."""
        return cls(
            folder=Path(config["history"]),
            name=name,
            book=Path(config["book"]),
            seed=config["seed"],
            pace_s=config["pace_s"],
            url=config["url"],
            token=config["token"],
        )

    def addresses(self, kind: str) -> list[Address]:
        """Return the instances of ``writers`` or ``readers``."""
        book = json.loads(self.book.read_text())
        return [Address(each["instance"], each["http"], each["resp"]) for each in book[kind]]


class ClientSession:
    """One client; it does one operation after the other."""

    weights: Mapping[str, int] = {}
    """The methods that do an operation, each with how often it is drawn."""

    def __init__(self, shared: Shared, name: str, interface: str) -> None:
        self.shared = shared
        self.name = name
        self.interface = interface
        self.rng = random.Random(f"{shared.seed}/{name}")
        self._number = 0

    def next_name(self) -> str:
        """Return a name that is written once."""
        return f"{self.name}/{self._number}"

    def record(
        self, function: Function, key: str, value: Any, call: Callable[[], Result], *, is_dirty: bool = False
    ) -> Result:
        """Make one request and record it; without ``value``, what the request returned is recorded."""
        start = time.monotonic()
        result = call()
        self.note(function, key, value, result, start, is_dirty=is_dirty)
        return result

    def note(
        self, function: Function, key: str, value: Any, result: Result, start: float, *, is_dirty: bool = False
    ) -> None:
        """Record a request that has ended."""
        end = time.monotonic()
        shown = result.value if value is None and result.outcome == "ok" else value
        operation = Operation(
            self.name,
            self._number,
            self.interface,
            result.served_by,
            function,
            key,
            shown,
            result.outcome,
            start,
            end,
            is_dirty,
        )
        self._number += 1
        with self.shared.lock:
            self.shared.journal.add(operation)

    def generation(self) -> int:
        """Return the number in the names of keys that are used for a while."""
        return int(time.monotonic() / GENERATION_S)

    def register(self) -> str:
        """Draw one of the registers that all clients write."""
        return f"register/{self.rng.randrange(REGISTERS)}"

    def expiring(self, *, is_read: bool = False) -> str:
        """Draw a key of rows with a lifetime; for reads also one that is written no more."""
        generation = self.generation() - (self.rng.randrange(OLD_GENERATIONS) if is_read else 0)
        return f"expiring/{generation}/{self.rng.randrange(EXPIRING)}"

    def lifetime(self) -> Lifetime:
        """Draw how long a row lives: a duration, or the time at which it expires."""
        seconds = self.rng.choice(LIFETIMES_S)
        return ("for", seconds) if self.rng.random() < 0.5 else ("until", time.monotonic() + seconds)

    def lock_key(self) -> str:
        """Draw a lock."""
        return f"lock/{self.rng.randrange(LOCKS)}"

    def list_keys(self) -> list[str]:
        """Draw lists of one group."""
        group = self.generation()
        return [f"list/{group}/{number}" for number in self.rng.sample(range(LISTS), self.rng.choice((2, 3)))]

    def group(self) -> str:
        """Return the prefix of the keys that are written together."""
        return f"group/{self.generation()}/"

    def members(self, group: str) -> list[str]:
        """Return the keys of a group."""
        return [f"{group}{number}" for number in range(MEMBERS)]

    def run(self) -> None:
        """Do operations until the process is told to stop."""
        while not self.shared.stop.is_set():
            is_well = self.act()
            self.shared.stop.wait(self.shared.pace_s * self.rng.uniform(0.5, 1.5) * (1 if is_well else 5))
        self.close()

    def act(self) -> bool:
        """Do one operation, drawn by ``weights``; return whether the process that was asked answers."""
        name = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        done: Result = getattr(self, name)()
        return done.outcome == "ok"

    def close(self) -> None:
        """Close the connection."""
