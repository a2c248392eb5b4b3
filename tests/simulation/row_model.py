"""The results that callers of simulated writers received, and the rows that the database may hold because of them.

Source: docs/reference/protocol.md 16.
"""

from dataclasses import dataclass, field
from enum import Enum


class Told(Enum):
    """The outcome that the caller received."""

    UNKNOWN = "written, not yet durable, or the writer died"
    DURABLE = "acknowledged"
    FAILED = "refused: must never appear"


@dataclass(slots=True, eq=False)
class Attempt:
    """One write of one key; ``value`` is ``None`` for a delete and otherwise unique."""

    order: int
    writer: str
    key: bytes
    value: bytes | None
    seq: int = 0
    told: Told = Told.UNKNOWN


@dataclass(slots=True)
class RowModel:
    """Every attempt of every writer, in order."""

    attempts: list[Attempt] = field(default_factory=list)

    def attempt(self, writer: str, key: bytes, value: bytes | None) -> Attempt:
        """Record the start of a write."""
        made = Attempt(len(self.attempts), writer, key, value)
        self.attempts.append(made)
        return made

    def durable_through(self, writer: str, seq: int) -> None:
        """Record that a writer has acknowledged everything up to ``seq``."""
        for attempt in self.attempts:
            if attempt.writer == writer and attempt.told is Told.UNKNOWN and 0 < attempt.seq <= seq:
                attempt.told = Told.DURABLE

    def check(self, rows: dict[bytes, bytes]) -> None:
        """Compare with the rows of a reader after all faults."""
        self._check_sequence_numbers()
        for key in sorted({attempt.key for attempt in self.attempts} | set(rows)):
            allowed = self.allowed(key)
            assert rows.get(key) in allowed, f"{key!r} is {rows.get(key)!r}, allowed is {allowed}"

    def allowed(self, key: bytes) -> list[bytes | None]:
        """Return the last acknowledged write of a key, and later ones whose outcome is unknown."""
        history = [attempt for attempt in self.attempts if attempt.key == key and attempt.told is not Told.FAILED]
        acknowledged = [attempt for attempt in history if attempt.told is Told.DURABLE]
        last = max(acknowledged, key=lambda attempt: attempt.seq, default=None)
        newest = [None] if last is None else [last.value]
        return newest + [
            attempt.value
            for attempt in history
            if attempt.told is Told.UNKNOWN and (last is None or attempt.order > last.order or attempt.seq > last.seq)
        ]

    def _check_sequence_numbers(self) -> None:
        """Check that no two acknowledged commits share a sequence number."""
        owners: dict[int, str] = {}
        for attempt in self.attempts:
            if attempt.told is Told.DURABLE:
                owner = owners.setdefault(attempt.seq, attempt.writer)
                assert owner == attempt.writer, f"seq {attempt.seq} was acknowledged by {owner} and {attempt.writer}"
