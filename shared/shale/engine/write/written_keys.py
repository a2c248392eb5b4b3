"""Written keys with their last sequence numbers: what the history keeps of flushed memtables."""

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np

from shale.compaction.filters import BoolMask
from shale.engine.memtable.sorted_part import SortedPart
from shale.env import Env
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.source import RowsSource, drain
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import I64, Rows, concat_rows
from shale.types import KeyRange

_COLUMNS_BYTES = 16
"""Bytes of a key's offset and sequence number."""


class WrittenKeys:
    """One row for each key, with the sequence number of its last write.

    Args:
        rows: in key order, one row per key; only keys and sequence numbers are kept.
    """

    __slots__ = ("_part", "last_seq", "size_bytes")

    def __init__(self, rows: Rows) -> None:
        self._part = SortedPart(_bare(rows))
        self.last_seq = int(rows.seq.max()) if len(rows) else 0
        self.size_bytes = int(rows.key_offsets[-1] - rows.key_offsets[0]) + _COLUMNS_BYTES * len(rows)

    def __len__(self) -> int:
        return len(self._part)

    @property
    def rows(self) -> Rows:
        """Keys and sequence numbers; values, flags and times are empty."""
        return self._part.rows

    def last_seq_of(self, key: bytes) -> int:
        """Return the sequence number of the last write of a key; 0 if it was not written."""
        part = self._part
        place = part.lower_bound(key)
        return int(part.rows.seq[place]) if place < len(part) and part.key_at(place) == key else 0

    def wrote_in(self, key_range: KeyRange, seq: int) -> bool:
        """Return whether a key in the range was written after ``seq``."""
        return bool((self._part.slice(key_range).seq > np.uint64(seq)).any())


async def newest_writes(parts: Sequence[Rows], after_seq: int, env: Env) -> WrittenKeys:
    """Return the keys of several parts that were written after ``after_seq``.

    Args:
        parts: each by key, then seq descending.
    """
    bare = [await env.cpu.run(partial(_later, part, after_seq)) for part in parts]
    merged = MergeFilterSource(
        [RowsSource(rows) for rows in bare],
        MergeRules(newest_only=True),
        env,
        low_memory=True,
    )
    return WrittenKeys(concat_rows(await drain(merged)))


def without(rows: Rows, hidden: Collection[tuple[bytes, int]]) -> Rows:
    """Return sorted rows without those of some keys and sequence numbers."""
    part, kept = SortedPart(rows), np.ones(len(rows), np.bool_)
    for key, seq in hidden:
        place = part.lower_bound(key)
        while place < len(part) and part.key_at(place) == key:
            kept[place] &= int(rows.seq[place]) != seq
            place += 1
    return rows if kept.all() else _chosen(_bare(rows), kept)


def first_affordable_seq(parts: Sequence[WrittenKeys], limit_bytes: int) -> int:
    """Return the lowest sequence number after which the written keys take at most ``limit_bytes``."""
    seqs = np.concatenate([part.rows.seq for part in parts])
    sizes = np.concatenate([np.diff(part.rows.key_offsets) for part in parts]) + _COLUMNS_BYTES
    order = np.argsort(seqs)[::-1]
    dear = np.flatnonzero(np.cumsum(sizes[order]) > limit_bytes)
    return int(seqs[order[dear[0]]]) if len(dear) else 0


def _bare(rows: Rows) -> Rows:
    """Copy keys and sequence numbers; the other columns take no memory."""
    count = len(rows)
    nothing: I64 = np.broadcast_to(np.int64(0), count)
    start, end = int(rows.key_offsets[0]), int(rows.key_offsets[-1])
    return Rows(
        key_bytes=rows.key_bytes[start:end].copy(),
        key_offsets=rows.key_offsets - start,
        val_bytes=np.zeros(0, np.uint8),
        val_offsets=np.broadcast_to(np.int64(0), count + 1),
        seq=rows.seq.copy(),
        flags=np.broadcast_to(np.uint8(0), count),
        create_ts=nothing,
        expire_ts=nothing,
    )


def _later(rows: Rows, seq: int) -> Rows:
    """Return the rows newer than ``seq``, with all columns in memory."""
    bare = _chosen(_bare(rows), rows.seq > np.uint64(seq))
    count = len(bare)
    return Rows(
        key_bytes=bare.key_bytes,
        key_offsets=bare.key_offsets,
        val_bytes=bare.val_bytes,
        val_offsets=np.zeros(count + 1, np.int64),
        seq=bare.seq,
        flags=np.zeros(count, np.uint8),
        create_ts=np.zeros(count, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )


def _chosen(bare: Rows, chosen: BoolMask) -> Rows:
    """Select rows of which only keys and sequence numbers are kept."""
    if chosen.all():
        return bare
    sizes = np.diff(bare.key_offsets)
    offsets = np.zeros(int(chosen.sum()) + 1, np.int64)
    np.cumsum(sizes[chosen], out=offsets[1:])
    count = len(offsets) - 1
    return Rows(
        key_bytes=bare.key_bytes[np.repeat(chosen, sizes)],
        key_offsets=offsets,
        val_bytes=bare.val_bytes,
        val_offsets=bare.val_offsets[: count + 1],
        seq=bare.seq[chosen],
        flags=bare.flags[:count],
        create_ts=bare.create_ts[:count],
        expire_ts=bare.expire_ts[:count],
    )
