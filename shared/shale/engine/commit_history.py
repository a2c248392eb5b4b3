"""What was written since a transaction began: asked when it commits, and free of charge for every other write.

Memtables know all of it.  While a transaction is open the history keeps the memtable in which it began and every later
one, and of those that were flushed which keys were written, and when last, within a number of bytes: a transaction that
would need more is lost.  Source: docs/protocol.md 4.4; SlateDB's transaction_manager.rs for what counts as a conflict.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count

from shale.engine.memtable import Memtable
from shale.engine.written_keys import WrittenKeys, first_affordable_seq, newest_writes, without
from shale.env import Env
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import KeyRange

log = get_logger("writer")


class CommitHistory:
    """The writes since the oldest open transaction began.

    Args:
        table: the active memtable.
        limit_bytes: of the keys that were written and flushed since.
    """

    __slots__ = ("_begun", "_flushed", "_hidden", "_numbers", "_table", "_tables", "limit_bytes")

    def __init__(self, table: Memtable, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._table = table
        self._tables: deque[tuple[int, Memtable]] = deque()
        self._flushed: list[WrittenKeys] = []
        # By transaction: one operation of the dict registers or removes, so one may be dropped in any thread.
        self._begun: dict[int, tuple[int, int]] = {}
        """The number of the memtable and the sequence number with which it began."""
        self._numbers = count()
        self._hidden: set[tuple[bytes, int]] = set()

    @property
    def size_bytes(self) -> int:
        """What the keys take of memtables that were flushed; memtables are counted by their owner."""
        return sum(part.size_bytes for part in self._flushed)

    def follow(self, table: Memtable) -> None:
        """Writes go to another memtable from now on."""
        self._table = table
        self.forget()
        if self._begun:
            self._tables.append((next(self._numbers), table))

    def begin(self, seq: int) -> "Since":
        """Remember what is written from now on, until the result is closed or dropped.

        Args:
            seq: the newest commit.
        """
        self.forget()
        if not self._tables or self._tables[-1][1] is not self._table:
            self._tables.append((next(self._numbers), self._table))
        number = next(self._numbers)
        self._begun[number] = self._tables[-1][0], seq
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
        return any(part.last_seq > seq and part.last_seq_of(key) > seq for part in self._flushed)

    def wrote_in(self, key_range: KeyRange, seq: int, begun: int) -> bool:
        """Whether a key of a range was written after ``seq``, since ``begun``."""
        return any(part.last_seq > seq and part.wrote_in(key_range, seq) for part in self._flushed) or any(
            (key, each) not in self._hidden
            for number, table in self._tables
            if number >= begun
            for key, each in table.writes_after(seq, key_range)
        )

    def forget(self) -> None:
        """Let go of what no open transaction asks about."""
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
        """These memtables, frozen and sorted, are not needed by anybody else: keep only which keys were written.

        Keys that were written again take no more memory than once.  Beyond the limit the oldest transactions are lost.
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

    async def _merge(self, parts: Sequence[WrittenKeys], rows: Rows, env: Env) -> None:
        """Put ``parts`` and rows together, as far as somebody asks for them."""
        oldest_seq = min((seq for _, seq in list(self._begun.values())), default=0)
        merged = await newest_writes([*(part.rows for part in parts), rows], oldest_seq, env)
        gone = set(map(id, parts))
        self._flushed = [part for part in self._flushed if id(part) not in gone]
        if self._begun and len(merged):
            self._flushed.append(merged)

    async def _shrink(self, env: Env) -> None:
        """Lose the transactions that need the most, until the rest need no more than the limit."""
        await self._merge(self._flushed, EMPTY_ROWS, env)
        if self.size_bytes <= self.limit_bytes:
            return
        affordable = first_affordable_seq(self._flushed, self.limit_bytes)
        lost = [number for number, (_, seq) in list(self._begun.items()) if seq < affordable]
        for number in lost:
            self._begun.pop(number, None)
        log.warning(Event.TRANSACTIONS_LOST, count=len(lost), bytes=self.size_bytes, limit_bytes=self.limit_bytes)
        self.forget()
        await self._merge(self._flushed, EMPTY_ROWS, env)


class Since:
    """The moment at which a transaction began."""

    __slots__ = ("_begun", "_history", "_number", "_table_number", "seq")

    def __init__(self, history: CommitHistory, begun: dict[int, tuple[int, int]], number: int, seq: int) -> None:
        self._history = history
        self._begun = begun
        self._number = number
        self._table_number = begun[number][0]
        self.seq = seq

    @property
    def is_lost(self) -> bool:
        """Whether too much was written since, so that the answers are not known any more."""
        return self._number not in self._begun

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
