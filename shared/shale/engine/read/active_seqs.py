"""The sequence numbers at which reads look, so that flushes and compactions keep what is visible at them.

A snapshot, a transaction and a scan that has begun hold the sequence number of their moment.  Flushes keep the versions
that the oldest one needs, and the manifest tells compactors about it (docs/reference/protocol.md 4.8).
"""

from itertools import count


class ActiveSeqs:
    """The sequence numbers that reads hold."""

    __slots__ = ("_numbers", "_seqs")

    def __init__(self) -> None:
        # By holder.  Each registers and leaves with one dict operation, so a holder may be dropped in any thread.
        self._seqs: dict[int, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._seqs)

    def hold(self, seq: int) -> "Held":
        """Keep what is visible at ``seq`` until the result is closed or dropped.

        The caller must not await between choosing ``seq`` and this call, and ``seq`` must be the newest or the durable
        sequence number: a flush under way keeps what is visible at both.
        """
        number = next(self._numbers)
        self._seqs[number] = seq
        return Held(self._seqs, number, seq)

    def oldest(self) -> int | None:
        """Return the lowest held sequence number; ``None`` if none is held."""
        return min(list(self._seqs.values()), default=None)


class Held:
    """A sequence number that one read holds."""

    __slots__ = ("_seqs", "number", "seq")

    def __init__(self, seqs: dict[int, int], number: int, seq: int) -> None:
        self._seqs = seqs
        self.number = number
        self.seq = seq

    def close(self) -> None:
        """Release the sequence number; may be called again."""
        self._seqs.pop(self.number, None)

    def __del__(self) -> None:
        self.close()
