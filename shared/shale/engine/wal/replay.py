"""Reads rows back from the WAL (docs/reference/protocol.md 4.6 and 5.2): for writers at open, and for readers."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES
from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.errors import CorruptionError, WalTruncated
from shale.kernels.rows import I64, Rows, concat_rows
from shale.protocol.wal_store import WalStore
from shale.types import FLAG_CREATE_TS

PRELOAD_FILES = 4
PRELOAD_FILES_MAX = 32
_PRELOAD_BYTES = 32 << 20
KEPT_BYTES_MAX = 64 << 20
WHAT_TO_DO = (
    "restore it from a backup or from an older version of the object, or write an empty file in its place to give its "
    "rows up"
)
_NOTHING: Mapping[int, Rows] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRows:
    """Rows of a range of the WAL by ascending seq; ends between two commits and may be empty.

    ``consumed_wal_id``: this table and its predecessors hold all rows of files up to this id.  ``last_tick``: the
    newest commit time in milliseconds; ``None`` if no row has one.
    """

    parts: Sequence[Rows]
    consumed_wal_id: int
    size_bytes: int
    last_tick: int | None

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(map(len, self.parts))

    @property
    def rows(self) -> Rows:
        """All rows; copied if they come from several files."""
        return concat_rows(self.parts)

    @property
    def first_seq(self) -> int:
        """The oldest sequence number; the table must have rows."""
        return int(self.parts[0].seq[0])

    @property
    def last_seq(self) -> int:
        """The newest sequence number; the table must have rows."""
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
) -> AsyncGenerator[ReplayedRows, None]:
    """Yield the rows of WAL files ``first_id`` to ``last_id`` (both included) in tables of bounded size.

    A table ends between two commits as soon as its estimated size reaches ``max_table_bytes``.  The last table holds
    the rest; it is yielded even if empty, because it tells how far replay came.

    Args:
        min_seq: skip rows up to this sequence number; they are in L0.
        known: rows that were read before, by file.

    Raises:
        WalTruncated: a file is missing; all rows before it have been yielded.
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
        raise WalTruncated(missing_id, WHAT_TO_DO, path=wal.key(missing_id))


async def check_wal(
    wal: WalStore, first_id: int, last_id: int, env: Env, known: dict[int, Rows] | None = None
) -> dict[int, Rows]:
    """Read WAL files ``first_id`` to ``last_id`` (both included).

    Args:
        known: rows that were read before, by file; those of other files are removed.

    Returns:
        ``known`` with the rows of the first files, by id, within the memory of one memtable.  A file never changes, so
        replay need not read it again.

    Raises:
        WalTruncated: a file is missing; before a claim, the garbage collector may rightly delete it.
        CorruptionError: a file is damaged, or its sequence numbers do not follow the ones before it.
    """
    kept = {} if known is None else known
    for wal_id in [each for each in kept if not first_id <= each <= last_id]:
        del kept[wal_id]
    room = KEPT_BYTES_MAX
    async for wal_id, rows in wal_rows(wal, first_id, last_id, env, known=kept):
        if rows is None:
            raise WalTruncated(wal_id, WHAT_TO_DO, path=wal.key(wal_id))
        if wal_id not in kept and room > 0:
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
    """Yield the rows of each file, up to the first missing one, for which ``None`` is yielded.

    Args:
        last_seq: the first row must have a higher sequence number.
        known: rows of files that need not be read.

    Raises:
        CorruptionError: a file is damaged, or its sequence numbers do not follow the ones before it.
    """
    start, count = first_id, PRELOAD_FILES
    while start <= last_id:
        wal_ids = range(start, min(start + count, last_id + 1))
        unknown = [wal_id for wal_id in wal_ids if wal_id not in known]
        read = await gather([partial(_try_read, wal, wal_id, env) for wal_id in unknown]) if unknown else []
        contents = {**dict(zip(unknown, read, strict=True)), **{each: known[each] for each in wal_ids if each in known}}
        for wal_id in wal_ids:
            rows = contents[wal_id]
            if isinstance(rows, CorruptionError):
                raise rows
            if rows is None:
                yield wal_id, None
                return
            if len(rows):
                if int(rows.seq[0]) <= last_seq:
                    raise CorruptionError(
                        f"begins with seq {rows.seq[0]}, which is not above {last_seq}", path=wal.key(wal_id)
                    )
                last_seq = int(rows.seq[-1])
            yield wal_id, rows
        # Small files are read many at a time, so that the latency of the store matters less.
        largest = max(rows.size_bytes for rows in contents.values() if isinstance(rows, Rows))
        start, count = wal_ids.stop, min(max(PRELOAD_FILES, _PRELOAD_BYTES // max(largest, 1)), PRELOAD_FILES_MAX)
        # What was yielded is not to be held while the next files are read.
        del read, contents


async def _try_read(wal: WalStore, wal_id: int, env: Env) -> Rows | CorruptionError | None:
    """Return the rows of a file.  An error is returned, not raised: it counts only if no earlier file is missing."""
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

    def feed(self, rows: Rows, wal_id: int) -> list[ReplayedRows]:
        """Add the rows of one file and return the full tables."""
        full: list[ReplayedRows] = []
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

    def take(self) -> ReplayedRows:
        """Return the current table and start an empty one."""
        ticks = [_last_tick(rows) for rows in self._parts]
        table = ReplayedRows(
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
    """Return the estimated bytes of the rows before each place, shape (n+1,)."""
    count = np.arange(len(rows) + 1)
    keys, values = rows.key_offsets, rows.val_offsets
    sizes: I64 = keys - keys[0] + values - values[0] + count * ROW_OVERHEAD_BYTES
    return sizes


def _end_of_commit(rows: Rows, place: int) -> int:
    """Return the end of the commit of the row before ``place``."""
    return int(np.searchsorted(rows.seq, rows.seq[place - 1], "right")) if place else 0
