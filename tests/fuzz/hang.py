"""Tells an input that does not end from a process that waits for the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_WAITED_NS = 1
_FACTOR_MAX = 6
"""On the busiest machine an input ends within so many times the limit."""
_FACTOR_OF_SEEDS = 12
"""Before the first input the process makes its seeds, which may take longer."""


@dataclass(frozen=True)
class Waits:
    """What a process waits for that is the machine's and not its own.

    ``processor_s``: for each thread, how long it was ready and had no processor since it began.
    """

    processor_s: Mapping[int, float]
    is_for_disk: bool


class HangWatch:
    """How long an input of one process runs, without what the process waits for the machine."""

    def __init__(self, limit_s: float, now_s: float) -> None:
        self._limit_s = limit_s
        self._number = 0
        self._since_s = self._seen_s = now_s
        self._last: Mapping[int, float] = {}
        self._waited_s = 0.0

    def is_hang(self, number: int, waits: Waits, now_s: float) -> bool:
        """Return whether the input of this number runs too long; to be called many times within the limit."""
        if number != self._number:
            self._number, self._since_s, self._waited_s = number, now_s, 0.0
        else:
            # The time of a thread that ended is not counted twice, and not taken back.
            waited_s = sum(max(0.0, each - self._last.get(thread, 0.0)) for thread, each in waits.processor_s.items())
            self._waited_s += max(waited_s, (now_s - self._seen_s) * waits.is_for_disk)
        self._last, self._seen_s = waits.processor_s, now_s
        limit_s = self._limit_s * (1 if number else _FACTOR_OF_SEEDS)
        lasts_s = now_s - self._since_s
        return lasts_s - self._waited_s > limit_s or lasts_s > _FACTOR_MAX * limit_s


def waits_of(pid: int) -> Waits:
    """Read what a process waits for; nothing of one that ended, and no time where the kernel does not count it."""
    texts = {int(path.parent.name): _text(path) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")}
    waited_s = {thread: int(text.split()[_WAITED_NS]) / 1e9 for thread, text in texts.items() if text}
    state = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return Waits(waited_s, state[:1] == ["D"])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread or process ended
        return ""
