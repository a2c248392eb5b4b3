"""The writes since open transactions began, for the conflict check of their commits.

Other writes pay nothing for it: the memtables hold all rows.  While a transaction is open, the history keeps the
memtable in which it began and all later ones.  Of flushed memtables it keeps each key with its last sequence number,
up to a limit in bytes; a transaction that needs more has overflowed and cannot commit.

Source: docs/reference/protocol.md 4.4; SlateDB's transaction_manager.rs for what counts as a conflict.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from shale.core.lazy_names import import_at_call
from shale.engine.memtable.memtable import Memtable
from shale.env import Env
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import KeyRange

if TYPE_CHECKING:
    from shale.engine.write.written_keys import WrittenKeys, first_affordable_seq, newest_writes, without
else:  # with the first flush while a transaction is open
    first_affordable_seq, newest_writes, without = import_at_call(
        globals(),
        first_affordable_seq="shale.engine.write.written_keys",
        newest_writes="shale.engine.write.written_keys",
        without="shale.engine.write.written_keys",
    )

log = get_logger("writer")


class CommitHistory:
    """The writes since the oldest open transaction began.

    Args:
        table: the active memtable.
        limit_bytes: bound of the keys kept of flushed memtables.
    """

    __slots__ = ("_begun", "_flushed", "_hidden", "_numbers", "_table", "_tables", "limit_bytes")

    def __init__(self, table: Memtable, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._table = table
        self._tables: deque[tuple[int, Memtable]] = deque()
        self._flushed: list[WrittenKeys] = []
        # By transaction.  Each registers and leaves with one dict operation, so it may be dropped in any thread.
        self._begun: dict[int, tuple[int, int]] = {}
        """The number of the memtable and the sequence number with which it began."""
        self._numbers = count()
        self._hidden: set[tuple[bytes, int]] = set()

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys kept of flushed memtables; memtables themselves are counted by their owner."""
        return sum(part.size_bytes for part in self._flushed)

    def set_active(self, table: Memtable) -> None:
        """Record that writes go to another memtable from now on."""
        self._table = table
        self.forget()
        if self._begun:
            self._tables.append((next(self._numbers), table))

    def begin(self, seq: int) -> "ConflictWindow":
        """Keep what is written from now on, until the result is closed or dropped.

        Args:
            seq: the newest commit.
        """
        self.forget()
        if not self._tables or self._tables[-1][1] is not self._table:
            self._tables.append((next(self._numbers), self._table))
        number = next(self._numbers)
        self._begun[number] = self._tables[-1][0], seq
        return ConflictWindow(self, self._begun, number, seq)

    def hide(self, keys: Iterable[bytes], seq: int) -> None:
        """Exclude writes of the commit ``seq`` from conflicts: its transaction unmarked them."""
        if self._begun:
            self._hidden.update((key, seq) for key in keys)

    def wrote(self, key: bytes, seq: int, begun: int) -> bool:
        """Return whether a key was written after ``seq`` in the memtables from ``begun`` on."""
        for number, table in self._tables:
            if number >= begun and (newest := table.last_seq_of(key)) > seq:
                if (key, newest) not in self._hidden:
                    return True
                if any((key, each) not in self._hidden for each in table.seqs_of(key) if each > seq):
                    return True
        return any(part.last_seq > seq and part.last_seq_of(key) > seq for part in self._flushed)

    def wrote_in(self, key_range: KeyRange, seq: int, begun: int) -> bool:
        """Return whether a key in a range was written after ``seq`` in the memtables from ``begun`` on."""
        return any(part.last_seq > seq and part.wrote_in(key_range, seq) for part in self._flushed) or any(
            (key, each) not in self._hidden
            for number, table in self._tables
            if number >= begun
            for key, each in table.writes_after(seq, key_range)
        )

    def forget(self) -> None:
        """Drop what no open transaction needs."""
        begun = list(self._begun.values())
        if not begun:
            self._tables.clear()
            self._flushed.clear()
            self._hidden.clear()
            return
        oldest_table, oldest_seq = min(begun)
        while self._tables and self._tables[0][0] < oldest_table:
            self._tables.popleft()
        self._flushed = [part for part in self._flushed if part.last_seq > oldest_seq]

    async def flushed(self, tables: Sequence[Memtable], env: Env) -> None:
        """Replace flushed memtables by the keys that were written.

        A key that is written again takes no more memory.  Beyond the limit, the oldest transactions overflow.

        Args:
            tables: frozen and sorted, no longer needed for anything else.
            env: CPU.
        """
        for table in tables:
            self.forget()
            if not any(each is table for _, each in self._tables):
                continue
            last_seq = table.last_seq
            hidden = [(key, seq) for key, seq in self._hidden if seq <= last_seq]
            rows = await env.cpu.run(partial(without, table.rows(), hidden))
            # Parts halve in size, so a key is merged O(log n) times.
            start = len(self._flushed)
            while start and len(self._flushed[start - 1]) <= 2 * len(rows):
                start -= 1
            await self._merge(self._flushed[start:], rows, env)
            self._tables = deque((number, each) for number, each in self._tables if each is not table)
            self._hidden.difference_update(hidden)
        if self.size_bytes > self.limit_bytes:
            await self._shrink(env)

    async def _merge(self, parts: "Sequence[WrittenKeys]", rows: Rows, env: Env) -> None:
        """Merge ``parts`` and rows, as far as open transactions need them."""
        oldest_seq = min((seq for _, seq in list(self._begun.values())), default=0)
        merged = await newest_writes([*(part.rows for part in parts), rows], oldest_seq, env)
        gone = set(map(id, parts))
        self._flushed = [part for part in self._flushed if id(part) not in gone]
        if self._begun and len(merged):
            self._flushed.append(merged)

    async def _shrink(self, env: Env) -> None:
        """End the transactions that need the most, until the rest need no more than the limit."""
        await self._merge(self._flushed, EMPTY_ROWS, env)
        if self.size_bytes <= self.limit_bytes:
            return
        affordable = first_affordable_seq(self._flushed, self.limit_bytes)
        lost = [number for number, (_, seq) in list(self._begun.items()) if seq < affordable]
        for number in lost:
            self._begun.pop(number, None)
        log.warning(
            Event.TRANSACTIONS_HISTORY_OVERFLOW, count=len(lost), bytes=self.size_bytes, limit_bytes=self.limit_bytes
        )
        self.forget()
        await self._merge(self._flushed, EMPTY_ROWS, env)


class ConflictWindow:
    """What was written since one transaction began."""

    __slots__ = ("_begun", "_history", "_number", "_table_number", "seq")

    def __init__(self, history: CommitHistory, begun: dict[int, tuple[int, int]], number: int, seq: int) -> None:
        self._history = history
        self._begun = begun
        self._number = number
        self._table_number = begun[number][0]
        self.seq = seq

    @property
    def has_overflowed(self) -> bool:
        """Whether more was written than the history keeps, so conflicts cannot be ruled out."""
        return self._number not in self._begun

    def wrote_any(self, keys: Iterable[bytes]) -> bool:
        """Return whether one of the keys was written since."""
        wrote, seq, table = self._history.wrote, self.seq, self._table_number
        return any(wrote(key, seq, table) for key in keys)

    def wrote_in(self, ranges: Iterable[KeyRange]) -> bool:
        """Return whether a key in one of the ranges was written since."""
        return any(self._history.wrote_in(each, self.seq, self._table_number) for each in ranges)

    def close(self) -> None:
        """End the window; may be called again."""
        self._begun.pop(self._number, None)

    def __del__(self) -> None:
        self.close()
