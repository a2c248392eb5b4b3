"""What happened when, for the report."""

import json
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(slots=True)
class Event:
    """One fault or observation; times are those of the monotonic clock."""

    at: float
    kind: str
    target: str
    text: str = ""
    until: float | None = None
    fault: int | None = None
    """The number of the fault; ``None`` if it was observed."""


class Events:
    """Appends events to a file and keeps them for the report."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.all: list[Event] = []

    def add(self, kind: str, target: str, text: str = "", *, fault: int | None = None) -> Event:
        """Note an event that happens now."""
        event = Event(time.monotonic(), kind, target, text, fault=fault)
        with self._lock:
            self.all.append(event)
            self._write(event)
        return event

    def end(self, event: Event) -> None:
        """Note the end of a fault."""
        event.until = time.monotonic()
        with self._lock:
            self._write(event)

    def active(self, at: float, margin_s: float) -> list[Event]:
        """Return the faults that were active at a time, or ended shortly before."""
        return [
            each
            for each in self.all
            if each.fault is not None
            and each.at <= at <= (each.until if each.until is not None else each.at) + margin_s
        ]

    def _write(self, event: Event) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps(asdict(event)) + "\n")
