"""Rows that are in the WAL and in no SST yet: who reads them, and how they travel.

Where they are few, the planner reads them once and every task gets those of its keys.  That is also what keeps them:
files behind the checkpoint's own last one are protected by nothing but their age (docs/protocol.md 5.5).  Where they
are many, every task replays the files and keeps the rows of its keys.
"""

from collections.abc import AsyncIterator

import numpy as np

from shale.engine.memtable import Memtable
from shale.engine.replay import replay_wal
from shale.engine.where import Stores, Where
from shale.env import Env
from shale.iter.fused import Fused
from shale.iter.source import RowsSource, drain
from shale.kernels.rows import EMPTY_ROWS, Rows, concat_rows
from shale.kernels.rules import Rules
from shale.protocol.wal_store import WalStore
from shale.types import KeyRange
from shale_spark.source.plan import WalSpan

_PIECE_BYTES = 16 * 1024 * 1024


async def replay_few(
    stores: Stores, where: Where, span: WalSpan, *, min_seq: int, env: Env, bytes_max: int
) -> Memtable | None:
    """The rows above ``min_seq``, of each key only those that a reader may need; ``None`` if they are too many.

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
    newest = Fused([RowsSource(rows) for rows in everything.parts()], Rules(newest_only=True), env)
    return Memtable.from_rows(concat_rows(await drain(newest)))


async def replay_range(
    stores: Stores, where: Where, span: WalSpan, key_range: KeyRange, *, min_seq: int, env: Env
) -> list[Memtable]:
    """The rows of a range as tables, newest first.

    Memory: one piece of the WAL, and the rows of the range.

    Raises:
        WalTruncated: a file is gone.
        CorruptionError: a file is damaged.
    """
    tables = []
    async for rows in _replayed(stores, where, span, min_seq=min_seq, env=env):
        part = rows_of(Memtable.from_rows(rows), key_range)
        if len(part):
            tables.append(Memtable.from_rows(part))
    return tables[::-1]


def rows_of(table: Memtable, key_range: KeyRange) -> Rows:
    """The sorted rows of a range, in buffers of their own: a slice would keep, and pickle, those of the whole table."""
    rows = concat_rows(table.parts(key_range))
    return _own(rows) if len(rows) else EMPTY_ROWS


async def _replayed(stores: Stores, where: Where, span: WalSpan, *, min_seq: int, env: Env) -> AsyncIterator[Rows]:
    wal = WalStore(stores.wal or stores.main, where.root, env, transformer=where.block_transformer)
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
