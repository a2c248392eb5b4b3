"""What was written since a transaction began: asked when it commits, and free of charge for every other write.

Memtables know all of it.  While a transaction is open the history keeps the memtable in which it began and every later
one, also after they were flushed, then without their values.  Source: docs/protocol.md 4.4; SlateDB's
transaction_manager.rs for what counts as a conflict.
"""

from collections import deque
from collections.abc import Iterable
from itertools import count

from shale.engine.memtable import Memtable
from shale.types import KeyRange


class CommitHistory:
    """The memtables since the oldest open transaction began.

    Args:
        table: the active one.
    """

    __slots__ = ("_begun", "_hidden", "_numbers", "_table", "_tables")

    def __init__(self, table: Memtable) -> None:
        self._table = table
        self._tables: deque[tuple[int, Memtable]] = deque()
        # By transaction: one operation of the dict registers or removes, so one may be dropped in any thread.
        self._begun: dict[int, int] = {}
        self._numbers = count()
        self._hidden: set[tuple[bytes, int]] = set()

    def follow(self, table: Memtable) -> None:
        """Writes go to another memtable from now on."""
        self._table = table
        self.forget()
        if self._begun:
            self._tables = deque((number, each.without_values()) for number, each in self._tables)
            self._tables.append((next(self._numbers), table))

    def begin(self, seq: int) -> "Since":
        """Remember what is written from now on, until the result is closed or dropped.

        Args:
            seq: the newest commit.
        """
        self.forget()
        if not self._tables:
            self._tables.append((next(self._numbers), self._table))
        number = next(self._numbers)
        self._begun[number] = self._tables[-1][0]
        return Since(self, self._begun, number, seq)

    def hide(self, keys: Iterable[bytes], seq: int) -> None:
        """Writes of the commit ``seq`` that conflict with nobody, because its transaction said so."""
        if self._begun:
            self._hidden.update((key, seq) for key in keys)

    def wrote(self, key: bytes, seq: int, begun: int) -> bool:
        """Whether a key was written after ``seq``, since ``begun``."""
        for number, table in self._tables:
            if number >= begun and (newest := table.last_seq_of(key)) > seq:
                if (key, newest) not in self._hidden:
                    return True
                if any((key, each) not in self._hidden for each in table.seqs_of(key) if each > seq):
                    return True
        return False

    def wrote_in(self, key_range: KeyRange, seq: int, begun: int) -> bool:
        """Whether a key of a range was written after ``seq``, since ``begun``."""
        return any(
            (key, each) not in self._hidden
            for number, table in self._tables
            if number >= begun
            for key, each in table.writes_after(seq, key_range)
        )

    def forget(self) -> None:
        """Let go of what no open transaction asks about."""
        oldest = min(list(self._begun.values()), default=None)
        if oldest is None:
            self._tables.clear()
            self._hidden.clear()
        while oldest is not None and self._tables[0][0] < oldest:
            self._tables.popleft()


class Since:
    """The moment at which a transaction began."""

    __slots__ = ("_begun", "_history", "_number", "_table_number", "seq")

    def __init__(self, history: CommitHistory, begun: dict[int, int], number: int, seq: int) -> None:
        self._history = history
        self._begun = begun
        self._number = number
        self._table_number = begun[number]
        self.seq = seq

    def wrote_any(self, keys: Iterable[bytes]) -> bool:
        """Whether one of the keys was written since."""
        wrote, seq, table = self._history.wrote, self.seq, self._table_number
        return any(wrote(key, seq, table) for key in keys)

    def wrote_in(self, ranges: Iterable[KeyRange]) -> bool:
        """Whether a key of one of the ranges was written since."""
        return any(self._history.wrote_in(each, self.seq, self._table_number) for each in ranges)

    def close(self) -> None:
        """There are no more questions; may be called again."""
        self._begun.pop(self._number, None)

    def __del__(self) -> None:
        self.close()
