"""Reading rows back from the WAL (docs/protocol.md 4.6 and 5.2): for writers at open, and for readers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from shale.engine.memtable import ROW_OVERHEAD_BYTES
from shale.engine.wal_file import decode_wal_file
from shale.env import Env
from shale.errors import CorruptionError, WalTruncated
from shale.kernels.rows import I64, Rows, concat_rows
from shale.protocol.wal_store import WalStore
from shale.store.gather import gather
from shale.types import FLAG_CREATE_TS

PRELOAD_FILES = 4
_KEPT_BYTES_MAX = 64 << 20
_NOTHING: Mapping[int, Rows] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTable:
    """Rows of a stretch of the WAL by ascending seq, never ending inside a commit; there may be none.

    ``consumed_wal_id``: every file up to it is contained in this table and the ones before.  ``last_tick``: the
    newest commit time in milliseconds, ``None`` if no row has one.
    """

    parts: Sequence[Rows]
    consumed_wal_id: int
    size_bytes: int
    last_tick: int | None

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.parts))

    @property
    def rows(self) -> Rows:
        """All of them, copied together if they come from several files."""
        return concat_rows(self.parts)

    @property
    def first_seq(self) -> int:
        """The oldest seq; there must be rows."""
        return int(self.parts[0].seq[0])

    @property
    def last_seq(self) -> int:
        """The newest seq; there must be rows."""
        return int(self.parts[-1].seq[-1])


async def replay_wal(
    wal: WalStore,
    first_id: int,
    last_id: int,
    *,
    min_seq: int,
    max_table_bytes: int,
    env: Env,
    known: Mapping[int, Rows] = _NOTHING,
) -> AsyncIterator[ReplayedTable]:
    """Give the rows of WAL files ``first_id`` to ``last_id`` (both included) in tables of bounded size.

    A table ends between two commits as soon as its estimated size reaches ``max_table_bytes``; the last one holds the
    rest and is given even without rows, because it says how far replay came.

    Args:
        min_seq: rows up to this sequence number are skipped; they are in L0.
        known: what was read before, by file.

    Raises:
        WalTruncated: a file is missing; what was read before has been given.
        CorruptionError: a file is damaged, or its sequence numbers do not follow the ones before it.
    """
    builder = _TableBuilder(max_table_bytes, consumed=first_id - 1)
    missing_id: int | None = None
    async for wal_id, rows in wal_rows(wal, first_id, last_id, env, known=known):
        if rows is None:
            missing_id = wal_id
            continue
        for table in builder.feed(rows.slice(int(np.searchsorted(rows.seq, min_seq, "right")), len(rows)), wal_id):
            yield table
    yield builder.take()
    if missing_id is not None:
        raise WalTruncated(missing_id)


async def check_wal(wal: WalStore, first_id: int, last_id: int, env: Env) -> dict[int, Rows]:
    """Read WAL files ``first_id`` to ``last_id`` (both included).

    Nothing is said about a file that is missing: before a claim, a collector may be right to take it.

    Returns:
        The rows of the first files, by id, as far as keeping them costs no more memory than a memtable: a file never
        changes, so replay need not read it again.

    Raises:
        CorruptionError: a file is damaged, or its sequence numbers do not follow the ones before it.
    """
    kept: dict[int, Rows] = {}
    room = _KEPT_BYTES_MAX
    async for wal_id, rows in wal_rows(wal, first_id, last_id, env):
        if rows is not None and room > 0:
            room -= rows.size_bytes + len(rows) * ROW_OVERHEAD_BYTES
            kept[wal_id] = rows
    return kept


async def wal_rows(
    wal: WalStore,
    first_id: int,
    last_id: int,
    env: Env,
    *,
    last_seq: int = 0,
    known: Mapping[int, Rows] = _NOTHING,
) -> AsyncIterator[tuple[int, Rows | None]]:
    """Give the rows of each file, up to the first one that is missing, which gives ``None``.

    Args:
        last_seq: what the first file with rows has to begin above.
        known: rows of files that need not be read.

    Raises:
        CorruptionError: a file is damaged, or its sequence numbers do not follow the ones before it.
    """
    for start in range(first_id, last_id + 1, PRELOAD_FILES):
        wal_ids = range(start, min(start + PRELOAD_FILES, last_id + 1))
        contents = await gather([partial(_try_read, wal, wal_id, env, known.get(wal_id)) for wal_id in wal_ids])
        for wal_id, rows in zip(wal_ids, contents, strict=True):
            if isinstance(rows, CorruptionError):
                raise rows
            if rows is None:
                yield wal_id, None
                return
            if len(rows):
                if int(rows.seq[0]) <= last_seq:
                    raise CorruptionError(f"begins with seq {rows.seq[0]}, behind {last_seq}", path=wal.key(wal_id))
                last_seq = int(rows.seq[-1])
            yield wal_id, rows


async def _try_read(wal: WalStore, wal_id: int, env: Env, known: Rows | None) -> Rows | CorruptionError | None:
    """The rows of a file; what is wrong with it counts only if no file before it is missing."""
    if known is not None:
        return known
    data = await wal.read(wal_id)
    try:
        if data is None:
            return None
        return await decode_wal_file(data, wal.key(wal_id), env, transformer=wal.transformer)
    except CorruptionError as error:
        return error


class _TableBuilder:
    """Collects rows until a table is full."""

    def __init__(self, max_table_bytes: int, *, consumed: int) -> None:
        self._max_bytes = max_table_bytes
        self._parts: list[Rows] = []
        self._size_bytes = 0
        self._consumed = consumed

    def feed(self, rows: Rows, wal_id: int) -> list[ReplayedTable]:
        """Add the rows of one file and take the tables that are full."""
        full: list[ReplayedTable] = []
        start = 0
        sizes = _sizes(rows)
        while start < len(rows):
            room = self._max_bytes - self._size_bytes
            filled = int(np.searchsorted(sizes, sizes[start] + room, "left"))
            end = _end_of_commit(rows, filled) if filled < len(sizes) else len(rows)
            if start < end:
                self._parts.append(rows.slice(start, end))
            self._size_bytes += int(sizes[end] - sizes[start])
            start = end
            if start == len(rows):
                self._consumed = wal_id
            if self._size_bytes >= self._max_bytes:
                full.append(self.take())
        self._consumed = wal_id
        return full

    def take(self) -> ReplayedTable:
        """The table as it is; the next one is empty."""
        ticks = [_last_tick(rows) for rows in self._parts]
        table = ReplayedTable(
            parts=tuple(self._parts),
            consumed_wal_id=self._consumed,
            size_bytes=self._size_bytes,
            last_tick=max((tick for tick in ticks if tick is not None), default=None),
        )
        self._parts, self._size_bytes = [], 0
        return table


def _last_tick(rows: Rows) -> int | None:
    stamped = rows.create_ts[rows.flags & FLAG_CREATE_TS != 0]
    return int(stamped.max()) if len(stamped) else None


def _sizes(rows: Rows) -> I64:
    """Shape (n+1,): estimated bytes of the rows before each place."""
    count = np.arange(len(rows) + 1)
    keys, values = rows.key_offsets, rows.val_offsets
    sizes: I64 = keys - keys[0] + values - values[0] + count * ROW_OVERHEAD_BYTES
    return sizes


def _end_of_commit(rows: Rows, place: int) -> int:
    """The end of the commit whose row is in front of ``place``."""
    return int(np.searchsorted(rows.seq, rows.seq[place - 1], "right")) if place else 0
