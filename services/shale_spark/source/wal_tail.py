"""Rows that are in the WAL and in no SST yet.

If they are few, the planner reads them once and every task gets those of its keys.  That also protects them: only their
age protects WAL files after the checkpoint's own last one (docs/reference/protocol.md 5.5).  If they are many, every
task replays
the files and keeps the rows of its keys.
"""

from collections.abc import AsyncIterator

import numpy as np

from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.read_options import table_rows
from shale.engine.wal.replay import replay_wal
from shale.env import Env
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.source import RowsSource, drain
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import EMPTY_ROWS, Rows, concat_rows
from shale.protocol.wal_store import WalStore
from shale.types import KeyRange
from shale_spark.source.read_plan import WalFileRange

_PIECE_BYTES = 16 * 1024 * 1024


async def replay_if_small(
    stores: DatabaseStores, where: DatabaseLocation, span: WalFileRange, *, min_seq: int, env: Env, bytes_max: int
) -> Memtable | None:
    """Return the rows above ``min_seq``, of each key only those that a reader may need; ``None`` if they are too many.

    Raises:
        WalTruncated: a file is gone.
        CorruptionError: a file is damaged.
    """
    parts: list[Rows] = []
    size_bytes = 0
    async for rows in _replayed(stores, where, span, min_seq=min_seq, env=env):
        parts.append(rows)
        size_bytes += rows.size_bytes
        if size_bytes > bytes_max:
            return None
    everything = Memtable.from_rows(concat_rows(parts))
    newest = MergeFilterSource(
        [RowsSource(part.rows) for part in everything.sorted_parts()], MergeRules(newest_only=True), env
    )
    return Memtable.from_rows(concat_rows(await drain(newest)))


async def replay_range(
    stores: DatabaseStores, where: DatabaseLocation, span: WalFileRange, key_range: KeyRange, *, min_seq: int, env: Env
) -> list[Memtable]:
    """Return the rows of a range as tables, newest first.

    Memory: one piece of the WAL, and the rows of the range.

    Raises:
        WalTruncated: a file is gone.
        CorruptionError: a file is damaged.
    """
    tables = []
    async for rows in _replayed(stores, where, span, min_seq=min_seq, env=env):
        part = rows_in_range(Memtable.from_rows(rows), key_range)
        if len(part):
            tables.append(Memtable.from_rows(part))
    return tables[::-1]


def rows_in_range(table: Memtable, key_range: KeyRange) -> Rows:
    """Return the sorted rows of a range, copied: a slice would keep, and pickle, the buffers of the whole table."""
    rows = concat_rows(table_rows(table, key_range))
    return _own(rows) if len(rows) else EMPTY_ROWS


async def _replayed(
    stores: DatabaseStores, where: DatabaseLocation, span: WalFileRange, *, min_seq: int, env: Env
) -> AsyncIterator[Rows]:
    wal = WalStore(stores.wal or stores.main, where.root, transformer=where.block_transformer)
    pieces = replay_wal(wal, span.first_id, span.last_id, min_seq=min_seq, max_table_bytes=_PIECE_BYTES, env=env)
    async for piece in pieces:
        if len(piece.rows):
            yield piece.rows


def _own(rows: Rows) -> Rows:
    keys, values = rows.key_offsets, rows.val_offsets
    return Rows(
        key_bytes=np.array(rows.key_bytes[keys[0] : keys[-1]]),
        key_offsets=keys - keys[0],
        val_bytes=np.array(rows.val_bytes[values[0] : values[-1]]),
        val_offsets=values - values[0],
        seq=np.array(rows.seq),
        flags=np.array(rows.flags),
        create_ts=np.array(rows.create_ts),
        expire_ts=np.array(rows.expire_ts),
    )
