"""Folds merge operands onto what lies below them (docs/protocol.md 7.4)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from shale.compaction.filters import BoolMask
from shale.env import Env
from shale.errors import MergeOperatorFailed, MergeOperatorMissing
from shale.iter.source import RowSource
from shale.iter.user_code import RAISED, describe_error, is_value
from shale.kernels.rows import I64, Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.telemetry.shown_key import format_key
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

MergeOperator = Callable[[bytes, bytes | None, Sequence[bytes]], bytes]
"""``(key, existing value or None, operands oldest first) -> value``.  It must be associative, and the same in every
process that uses the database."""

OnRefused = Callable[[int, MergeOperatorFailed], None]
"""Told how many operands stay unfolded, and why the first of them does."""

BATCH_MAX = 100
"""Operands of one call while more may follow, so a key with many operands needs little memory."""
INLINE_OPERANDS_MAX = 64
"""More of them in a chunk of a read are folded in a thread; in a compaction all: heartbeats go on beside it."""
_STRETCH_GAP_MAX = 8
"""Rows between two operands that are cheaper handled one by one with them than kept as columns."""


def checked_operator(operator: MergeOperator, name: str) -> MergeOperator:
    """The operator, with errors that name it and the key.

    Args:
        operator: code of the user's.
        name: as settings call it.
    """

    def call(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        try:
            value = operator(key, existing, operands)
        except RAISED as error:  # whatever code of the user's raises, it fails the job and not the worker
            raise MergeOperatorFailed(
                f"merge operator {name!r} raised {describe_error(error)} for key {format_key(key)}"
            ) from error
        if not is_value(value):
            raise MergeOperatorFailed(
                f"merge operator {name!r} returned no bytes of a possible length for key {format_key(key)}"
            )
        return bytes(value)

    return call


class MergeOperandSource:
    """The rows of a source with operands folded, as far as snapshots and expiry allow.

    Args:
        source: merged rows.
        operator: folds operands.
        barrier: operands with a higher sequence number stay as they are, since a snapshot may separate them;
            ``None``: there is no snapshot.
        mix_expiry: fold as reads do: operands with different expiry too, and single ones, so that values come out.
        on_folded: told how many operands the operator got.
        on_refused: told how many operands stay as they are because the operator refuses them, and its first error;
            ``None``: that is an error of whoever asks for rows.

    Raises:
        MergeOperatorFailed: from ``next``, without ``on_refused``.
    """

    def __init__(
        self,
        source: RowSource,
        operator: MergeOperator,
        barrier: int | None,
        env: Env,
        *,
        mix_expiry: bool = False,
        on_folded: Callable[[int], None] = lambda _count: None,
        on_refused: OnRefused | None = None,
    ) -> None:
        self._source = source
        self._barrier = barrier
        self._env = env
        self._folds_all = mix_expiry
        self._folder = _Folder(operator, mix_expiry=mix_expiry, keeps_refused=on_refused is not None)
        self._on_folded = on_folded
        self._on_refused = on_refused

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while (rows := await self._source.next()) is not None:
            operands = np.flatnonzero(rows.flags & np.uint8(FLAG_MERGE))
            if not len(operands) and not self._folder.is_open:
                return rows
            fold = partial(self._fold, rows, operands)
            is_inline = self._folds_all and len(operands) <= INLINE_OPERANDS_MAX
            folded = fold() if is_inline else await self._env.cpu.run(fold)
            self._tell()
            if len(folded):
                return folded
        if not self._folder.is_open:
            return None
        rest = self._rest() if self._folds_all else await self._env.cpu.run(self._rest)
        self._tell()
        return rest

    def _tell(self) -> None:
        self._on_folded(self._folder.take_count())
        refused, error = self._folder.take_refused()
        if self._on_refused is not None and error is not None:
            self._on_refused(refused, error)

    def _rest(self) -> Rows:
        return rows_from_entries(list(self._folder.finish()))

    def _fold(self, rows: Rows, operands: I64) -> Rows:
        """Fold where operands are; the stretches between them stay columns."""
        if not self._folds_all:
            operands = operands[_are_followed(rows, operands)]
        begins = np.zeros(len(rows), np.bool_)
        begins[operands] = True
        parts = []
        at = 0
        while at < len(rows):
            if not self._folder.is_open:
                following = operands[np.searchsorted(operands, at) :]
                start = int(following[0]) if len(following) else len(rows)
                parts.append(rows.slice(at, start))
                at = start
            end = self._stretch_end(operands, at, len(rows))
            out: list[Entry] = []
            for entry, may_begin in zip(entries_from_rows(rows.slice(at, end)), begins[at:end].tolist(), strict=True):
                out += self._folder.feed(entry, self._barrier, may_begin=may_begin)
            parts.append(rows_from_entries(out))
            at = end
        return concat_rows(parts)

    @staticmethod
    def _stretch_end(operands: I64, at: int, row_count: int) -> int:
        """Behind the operands that lie close together from row ``at`` on, and the row that may be their base."""
        ahead = operands[np.searchsorted(operands, at) :]
        gaps = np.flatnonzero(np.diff(ahead) > _STRETCH_GAP_MAX)
        close = ahead[: gaps[0] + 1] if len(gaps) else ahead
        last = int(close[-1]) if len(close) and close[0] - at <= _STRETCH_GAP_MAX else at
        return min(last + 2, row_count)


class OperandRefusal:
    """The rows of a source that has no merge operands.

    Raises:
        MergeOperatorMissing: from ``next``, when it meets one.
    """

    def __init__(self, source: RowSource) -> None:
        self._source = source

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        rows = await self._source.next()
        if rows is not None:
            operands = np.flatnonzero(rows.flags & np.uint8(FLAG_MERGE))
            if len(operands):
                key = format_key(rows.key(int(operands[0])))
                raise MergeOperatorMissing(
                    f"key {key} has merge operands: give the compaction their merge_operator, or let them pass "
                    "with merge_passthrough"
                )
        return rows


@dataclass(slots=True)
class _Group:
    """Operands of one key that fold together, newest first; full batches are folded already."""

    first: Entry
    operands: list[Entry] = field(default_factory=list)
    folded: list[Entry] = field(default_factory=list)

    @property
    def rows(self) -> list[Entry]:
        """All there is of them."""
        return [*self.folded, *self.operands]


class _Folder:
    """Takes rows one by one and gives them back folded; at most one group is open.

    Args:
        keeps_refused: operands that the operator refuses come out as they went in, with the row below them.
    """

    def __init__(self, operator: MergeOperator, *, mix_expiry: bool, keeps_refused: bool = False) -> None:
        self._operator = operator
        self._mix_expiry = mix_expiry
        self._keeps_refused = keeps_refused
        self._group: _Group | None = None
        self._count = 0
        self._refused = 0
        self._error: MergeOperatorFailed | None = None

    @property
    def is_open(self) -> bool:
        return self._group is not None

    def take_count(self) -> int:
        """Operands that the operator got since the last call."""
        count, self._count = self._count, 0
        return count

    def take_refused(self) -> tuple[int, MergeOperatorFailed | None]:
        """Operands that stay as they are since the last call, and why the first of them does."""
        refused, self._refused = (self._refused, self._error), 0
        self._error = None
        return refused

    def feed(self, entry: Entry, barrier: int | None, *, may_begin: bool = True) -> Iterator[Entry]:
        group = self._group
        if group is not None:
            if self._matches(group.first, entry):
                yield from self._add(group, entry) if entry.is_merge else self._close(group, base=entry)
                return
            yield from self.finish()
        if not may_begin or not entry.is_merge or (barrier is not None and entry.seq > barrier):
            yield entry
            return
        self._group = _Group(entry)
        yield from self._add(self._group, entry)

    def finish(self) -> Iterable[Entry]:
        return () if self._group is None else self._close(self._group, base=None)

    def _matches(self, first: Entry, entry: Entry) -> bool:
        if entry.key != first.key:
            return False
        return self._mix_expiry or _expiry(first) == _expiry(entry)

    def _add(self, group: _Group, entry: Entry) -> Sequence[Entry]:
        """Take one more; returns the whole group if the operator refuses it."""
        group.operands.append(entry)
        if len(group.operands) >= BATCH_MAX:
            folded = self._try_fold(group.operands, FLAG_MERGE)
            if folded is None:
                return self._give_up(group)
            group.folded.append(folded)
            group.operands.clear()
        if len(group.folded) >= BATCH_MAX:
            folded = self._try_fold(group.folded, FLAG_MERGE)
            if folded is None:
                return self._give_up(group)
            group.folded = [folded]
        return ()

    def _close(self, group: _Group, base: Entry | None) -> Sequence[Entry]:
        versions = group.rows if base is None else [*group.rows, base]
        folded = self._try_fold(versions, FLAG_MERGE if base is None else 0)
        if folded is None:
            return [*self._give_up(group), *versions[len(group.rows) :]]
        self._group = None
        return [folded]

    def _give_up(self, group: _Group) -> Sequence[Entry]:
        self._group = None
        self._refused += len(group.rows)
        return group.rows

    def _try_fold(self, versions: Sequence[Entry], flags: int) -> Entry | None:
        """One row for all of them; ``None`` if the operator refuses and they may stay."""
        self._count += sum(entry.is_merge for entry in versions)
        try:
            return _fold_one(versions, self._operator, flags)
        except MergeOperatorFailed as error:
            if not self._keeps_refused:
                raise
            self._error = self._error or error
            return None


def _are_followed(rows: Rows, places: I64) -> BoolMask:
    """Which rows have an older one of their key behind them, as far as this chunk tells.

    Of the others each is all there is of its operands, and folding it would gain nothing.
    """
    followed: BoolMask = places == len(rows) - 1
    ahead = places[~followed]
    sizes = np.diff(rows.key_offsets)
    if (sizes == sizes[0]).all():
        keys = rows.key_bytes[rows.key_offsets[0] : rows.key_offsets[-1]].reshape(len(rows), -1)
        followed[: len(ahead)] = (keys[ahead] == keys[ahead + 1]).all(axis=1)
    else:
        alike = sizes[ahead] == sizes[ahead + 1]
        followed[: len(ahead)] = [
            same and rows.key(place) == rows.key(place + 1)
            for place, same in zip(ahead.tolist(), alike.tolist(), strict=True)
        ]
    return followed


def fold_versions(
    versions: Iterable[Entry], operator: MergeOperator, barrier: int | None, *, mix_expiry: bool = False
) -> list[Entry]:
    """Fold rows that are in memory, for instance the versions of one key, newest first."""
    folder = _Folder(operator, mix_expiry=mix_expiry)
    out = [folded for entry in versions for folded in folder.feed(entry, barrier)]
    out.extend(folder.finish())
    return out


def fold_visible(versions: Sequence[Entry], operator: MergeOperator) -> Entry:
    """What readers see of a key whose newest version is an operand.

    The same as ``fold_versions`` with ``mix_expiry``, without its steps: this is the way of every lookup.

    Args:
        versions: newest first; all are operands, but perhaps the last.
    """
    return _fold_one(versions, operator, 0)


def _fold_one(versions: Sequence[Entry], operator: MergeOperator, flags: int) -> Entry:
    """One row for the versions of a key, with ``flags`` and those of its times; see ``fold_visible``."""
    first, last = versions[0], versions[-1]
    values = [entry.value for entry in versions]
    existing = None
    if not last.flags & FLAG_MERGE:
        base = values.pop()
        existing = None if last.flags & FLAG_TOMBSTONE else base
    values.reverse()
    value = operator(first.key, existing, values)
    created = [entry.create_ts for entry in versions if entry.flags & FLAG_CREATE_TS]
    expiring = [entry.expire_ts for entry in versions if entry.flags & FLAG_EXPIRE_TS]
    flags |= (FLAG_CREATE_TS if created else 0) | (FLAG_EXPIRE_TS if expiring else 0)
    return Entry(first.key, value, first.seq, flags, max(created, default=0), min(expiring, default=0))


def _expiry(entry: Entry) -> int | None:
    return entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None
