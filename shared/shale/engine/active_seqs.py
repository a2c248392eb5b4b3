"""Which sequence numbers are still being read, so that flushes and compactions keep what is visible at them.

Everything that reads the database as it was at one moment, and may go on reading later (a snapshot, a transaction, a
scan that has begun), holds the sequence number of that moment.  Flushes keep the versions that the oldest one needs,
and the manifest tells compactors about it (docs/protocol.md 4.8).
"""

from itertools import count


class ActiveSeqs:
    """The sequence numbers at which somebody reads."""

    __slots__ = ("_numbers", "_seqs")

    def __init__(self) -> None:
        # By holder: one operation of the dict registers or removes, so a holder may be dropped in any thread.
        self._seqs: dict[int, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._seqs)

    def hold(self, seq: int) -> "Held":
        """Keep what is visible at ``seq`` until the result is closed or dropped.

        Without any wait between choosing ``seq`` and this call nothing can be lost: it must not be below what a flush
        under way takes for the oldest one, and neither the newest nor the durable sequence number is.
        """
        number = next(self._numbers)
        self._seqs[number] = seq
        return Held(self._seqs, number, seq)

    def oldest(self) -> int | None:
        """The lowest one; ``None`` if nobody reads."""
        return min(list(self._seqs.values()), default=None)


class Held:
    """One reader's claim on a sequence number."""

    __slots__ = ("_seqs", "number", "seq")

    def __init__(self, seqs: dict[int, int], number: int, seq: int) -> None:
        self._seqs = seqs
        self.number = number
        self.seq = seq

    def close(self) -> None:
        """Let go; may be called again."""
        self._seqs.pop(self.number, None)

    def __del__(self) -> None:
        self.close()
