"""One operation of a client, and its outcome."""

from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["ok", "fail", "unknown"]
"""``fail``: it had no effect.  ``unknown``: it may have had one, now or later."""
Function = Literal["read", "write", "cas", "txn", "add", "batch", "scan", "write_until", "read_live"]
NEVER = float("inf")
FINAL = "final"
"""The session that reads everything after the end of all others."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; ``start`` and ``end`` are seconds of the monotonic clock of the machine."""

    session: str
    """The client, which does one operation after the other."""
    number: int
    """Counts the operations of the session."""
    interface: str
    """How the client asked: ``http``, ``resp``, ``reader``, ``cli``, ``wheel``, and so on."""
    served_by: str
    """The process that answered.  A restarted process has another name."""
    function: Function
    key: str
    value: Any
    """What was written or read.

    ``read``, ``write``: the value, or ``None``.  ``read_live``: the same, without rows that have expired.
    ``write_until``: the value, and ``"for"`` and seconds, or ``"until"`` and a time like ``end``.  ``cas``: the
    expected and the new value.  ``add``: the counter after the addition.  ``txn``: steps ``["r", key, elements]`` and
    ``["append", key, element]``.  ``batch``, ``scan``: a mapping of keys to values.
    """
    outcome: Outcome
    start: float
    end: float
    is_dirty: bool = False
    """Whether a read may show what a crash can undo."""

    @property
    def name(self) -> str:
        """Return what the report calls this operation."""
        return f"{self.session}#{self.number}"

    @property
    def new_value(self) -> Any:
        """Return what a write leaves in the register."""
        if self.function == "write_until":
            return self.value[0]
        return self.value[1] if self.function == "cas" else self.value

    def line(self, begin: float) -> str:
        """Return one line for the report; its times are seconds after ``begin``."""
        times = f"{self.start - begin:.3f} to {self.end - begin:.3f} s"
        asked = f"{self.interface}@{self.served_by} {self.function} {self.key} {self.value}"
        return f"{self.name} {asked} {self.outcome}, {times}"
