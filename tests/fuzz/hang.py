"""Tells an input that does not end from a process that waits for the machine."""

from dataclasses import dataclass
from pathlib import Path

_WAITED_NS = 1
_FACTOR_MAX = 6
"""On the busiest machine an input ends within so many times the limit."""


@dataclass(frozen=True)
class Waits:
    """What a process waits for that is the machine's and not its own.

    ``processor_s``: how long its threads were ready and had no processor, since they began.
    """

    processor_s: float
    is_for_disk: bool


class HangWatch:
    """How long an input of one process runs, without what the process waits for the machine."""

    def __init__(self, limit_s: float, now_s: float) -> None:
        self._limit_s = limit_s
        self._number = 0
        self._since_s = self._seen_s = now_s
        self._processor_s = self._disk_s = 0.0

    def is_hang(self, number: int, waits: Waits, now_s: float) -> bool:
        """Return whether the input of this number runs too long; to be called many times within the limit."""
        if number != self._number:
            self._number, self._since_s = number, now_s
            self._processor_s, self._disk_s = waits.processor_s, 0.0
        elif waits.is_for_disk:
            self._disk_s += now_s - self._seen_s
        self._seen_s = now_s
        lasts_s = now_s - self._since_s
        own_s = lasts_s - self._disk_s - (waits.processor_s - self._processor_s)
        # Before the first input the process makes its seeds, which may take longer.
        return number > 0 and (own_s > self._limit_s or lasts_s > _FACTOR_MAX * self._limit_s)


def waits_of(pid: int) -> Waits:
    """Read what a process waits for; nothing of one that ended, and no time where the kernel does not count it."""
    threads = [_text(path) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    waited_ns = sum(int(text.split()[_WAITED_NS]) for text in threads if text)
    state = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return Waits(waited_ns / 1e9, state[:1] == ["D"])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread or process ended
        return ""
