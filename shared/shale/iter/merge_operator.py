"""Folds merge operands onto what lies below them (docs/protocol.md 7.4)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shale.iter.source import RowSource
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, Entry

MergeOperator = Callable[[bytes, bytes | None, Sequence[bytes]], bytes]
"""``(key, existing value or None, operands oldest first) -> value``.  It must be associative, and the same in every
process that uses the database."""

BATCH_MAX = 100
"""Operands of one call while more may follow, so a key with many operands needs little memory."""


class MergeOperandSource:
    """The rows of a source with operands folded, as far as snapshots and expiry allow.

    Args:
        source: merged rows.
        operator: folds operands.
        barrier: operands with a higher sequence number stay as they are, since a snapshot may separate them;
            ``None``: there is no snapshot.
        mix_expiry: fold operands with different expiry too, as reads do.
    """

    def __init__(
        self, source: RowSource, operator: MergeOperator, barrier: int | None, *, mix_expiry: bool = False
    ) -> None:
        self._source = source
        self._barrier = barrier
        self._folder = _Folder(operator, mix_expiry=mix_expiry)

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while (rows := await self._source.next()) is not None:
            folded = self._fold(rows)
            if len(folded):
                return folded
        rest = rows_from_entries(list(self._folder.finish()))
        return rest if len(rest) else None

    def _fold(self, rows: Rows) -> Rows:
        """Fold where operands are; the stretches between them stay columns."""
        operands = np.flatnonzero(rows.flags & np.uint8(FLAG_MERGE))
        parts = []
        at = 0
        while at < len(rows):
            if not self._folder.is_open:
                following = operands[np.searchsorted(operands, at) :]
                stop = int(following[0]) if len(following) else len(rows)
                parts.append(rows.slice(at, stop))
                at = stop
            out: list[Entry] = []
            while at < len(rows):
                entry = entries_from_rows(rows.slice(at, at + 1))[0]
                out += self._folder.feed(entry, self._barrier)
                at += 1
                if not self._folder.is_open:
                    break
            parts.append(rows_from_entries(out))
        return concat_rows(parts)


@dataclass(slots=True)
class _Group:
    """Operands of one key that fold together, newest first; full batches are folded already."""

    first: Entry
    operands: list[bytes] = field(default_factory=list)
    folded: list[bytes] = field(default_factory=list)
    create_ts: int | None = None
    expire_ts: int | None = None

    def note_times(self, entry: Entry) -> None:
        if entry.flags & FLAG_CREATE_TS:
            self.create_ts = entry.create_ts if self.create_ts is None else max(self.create_ts, entry.create_ts)
        if entry.flags & FLAG_EXPIRE_TS:
            self.expire_ts = entry.expire_ts if self.expire_ts is None else min(self.expire_ts, entry.expire_ts)


class _Folder:
    """Takes rows one by one and gives them back folded; at most one group is open."""

    def __init__(self, operator: MergeOperator, *, mix_expiry: bool) -> None:
        self._operator = operator
        self._mix_expiry = mix_expiry
        self._group: _Group | None = None

    @property
    def is_open(self) -> bool:
        return self._group is not None

    def feed(self, entry: Entry, barrier: int | None) -> Iterator[Entry]:
        group = self._group
        if group is not None:
            if not self._matches(group.first, entry):
                yield from self.finish()
            elif entry.is_merge:
                self._add(group, entry)
                return
            else:
                yield self._close(group, base=entry)
                return
        if not entry.is_merge or (barrier is not None and entry.seq > barrier):
            yield entry
            return
        self._group = _Group(entry)
        self._add(self._group, entry)

    def finish(self) -> Iterator[Entry]:
        if self._group is not None:
            yield self._close(self._group, base=None)

    def _matches(self, first: Entry, entry: Entry) -> bool:
        if entry.key != first.key:
            return False
        return self._mix_expiry or _expiry(first) == _expiry(entry)

    def _add(self, group: _Group, entry: Entry) -> None:
        group.note_times(entry)
        group.operands.append(entry.value)
        if len(group.operands) >= BATCH_MAX:
            group.folded.append(self._operator(group.first.key, None, group.operands[::-1]))
            group.operands.clear()

    def _close(self, group: _Group, base: Entry | None) -> Entry:
        self._group = None
        key = group.first.key
        existing = None
        if base is not None:
            group.note_times(base)
            existing = None if base.is_tombstone else base.value
        value = self._operator(key, existing, [*group.operands[::-1], *group.folded[::-1]])
        flags = 0 if base is not None else FLAG_MERGE
        if group.create_ts is not None:
            flags |= FLAG_CREATE_TS
        if group.expire_ts is not None:
            flags |= FLAG_EXPIRE_TS
        return Entry(key, value, group.first.seq, flags, group.create_ts or 0, group.expire_ts or 0)


def fold_versions(
    versions: Iterable[Entry], operator: MergeOperator, barrier: int | None, *, mix_expiry: bool = False
) -> list[Entry]:
    """Fold rows that are in memory, for instance the versions of one key, newest first."""
    folder = _Folder(operator, mix_expiry=mix_expiry)
    out = [folded for entry in versions for folded in folder.feed(entry, barrier)]
    out.extend(folder.finish())
    return out


def _expiry(entry: Entry) -> int | None:
    return entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None
