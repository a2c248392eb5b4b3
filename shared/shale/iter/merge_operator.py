"""Folds merge operands onto the value below them (docs/reference/protocol.md 7.4)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial

import numpy as np

from shale.compaction.filters import BoolMask
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import MergeOperatorFailed, MergeOperatorMissing
from shale.iter.source import RowSource
from shale.iter.user_code import USER_CODE_ERRORS, describe_error, is_value
from shale.kernels.rows import I64, Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.telemetry.key_format import format_key
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

MergeOperator = Callable[[bytes, bytes | None, Sequence[bytes]], bytes]
"""``(key, existing value or None, operands oldest first) -> value``.  It must be associative, and the same in every
process that uses the database."""

OnMergeFailure = Callable[[int, MergeOperatorFailed], None]
"""Receives the number of operands that stay unfolded, and the first error."""

BATCH_MAX = 100
"""Operands of one call before the key's last, so that a key with many operands needs little memory."""
INLINE_OPERANDS_MAX = 64
"""A read folds more operands per chunk in a thread; a compaction folds all there, so that heartbeats go on."""
_STRETCH_GAP_MAX = 8
"""Up to this gap rows between two operands are handled one by one: splitting columns costs more."""


def checked_operator(operator: MergeOperator, name: str) -> MergeOperator:
    """Return the operator with errors that name it and the key.

    Args:
        operator: user code.
        name: its name in the settings.
    """

    def call(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        try:
            value = operator(key, existing, operands)
        except USER_CODE_ERRORS as error:  # any error of user code fails the job, not the worker
            raise MergeOperatorFailed(
                f"merge operator {name!r} raised {describe_error(error)} for key {format_key(key)}"
            ) from error
        if not is_value(value):
            raise MergeOperatorFailed(
                f"merge operator {name!r} returned something else than bytes of at most 4 GiB for key {format_key(key)}"
            )
        return bytes(value)

    return call


class MergeOperandSource:
    """The rows of a source with operands folded, where snapshots and expiry allow it.

    Args:
        source: merged rows.
        operator: folds operands.
        barrier: operands with a higher sequence number stay, since a snapshot may separate them; ``None``: no snapshot.
        mix_expiry: fold as reads do, into values: also operands with different expiry, and single operands.
        on_folded: receives the number of operands passed to the operator.
        on_merge_failure: receives the number of operands that stay because the operator failed, and its first error;
            ``None``: ``next`` raises the error.

    Raises:
        MergeOperatorFailed: from ``next``, without ``on_merge_failure``.
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
        on_merge_failure: OnMergeFailure | None = None,
    ) -> None:
        self._source = source
        self._barrier = barrier
        self._env = env
        self._folds_all = mix_expiry
        self._folder = _Folder(operator, mix_expiry=mix_expiry, keep_failed=on_merge_failure is not None)
        self._on_folded = on_folded
        self._on_merge_failure = on_merge_failure

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while (rows := await self._source.next()) is not None:
            operands = np.flatnonzero(rows.flags & np.uint8(FLAG_MERGE))
            if not len(operands) and not self._folder.is_open:
                return rows
            fold = partial(self._fold, rows, operands)
            is_inline = self._folds_all and len(operands) <= INLINE_OPERANDS_MAX
            folded = fold() if is_inline else await self._env.cpu.run(fold)
            self._report()
            if len(folded):
                return folded
        if not self._folder.is_open:
            return None
        rest = self._rest() if self._folds_all else await self._env.cpu.run(self._rest)
        self._report()
        return rest

    def _report(self) -> None:
        self._on_folded(self._folder.take_count())
        failed, error = self._folder.take_failed()
        if self._on_merge_failure is not None and error is not None:
            self._on_merge_failure(failed, error)

    def _rest(self) -> Rows:
        return rows_from_entries(list(self._folder.finish()))

    def _fold(self, rows: Rows, operands: I64) -> Rows:
        """Fold the runs of operands; the rows between them stay columns."""
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
            end = self._group_end(operands, at, len(rows))
            out: list[Entry] = []
            for entry, may_begin in zip(entries_from_rows(rows.slice(at, end)), begins[at:end].tolist(), strict=True):
                out += self._folder.feed(entry, self._barrier, may_begin=may_begin)
            parts.append(rows_from_entries(out))
            at = end
        return concat_rows(parts)

    @staticmethod
    def _group_end(operands: I64, at: int, row_count: int) -> int:
        """Return the end of the operands close together from row ``at`` on, with the row that may be their base."""
        ahead = operands[np.searchsorted(operands, at) :]
        gaps = np.flatnonzero(np.diff(ahead) > _STRETCH_GAP_MAX)
        close = ahead[: gaps[0] + 1] if len(gaps) else ahead
        last = int(close[-1]) if len(close) and close[0] - at <= _STRETCH_GAP_MAX else at
        return min(last + 2, row_count)


class OperandCheckSource:
    """The rows of a source, which must have no merge operands.

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
class _OperandGroup:
    """Operands of one key that fold together, newest first; full batches are already folded."""

    first: Entry
    operands: list[Entry] = field(default_factory=list)
    folded: list[Entry] = field(default_factory=list)

    @property
    def rows(self) -> list[Entry]:
        """All rows of the group."""
        return [*self.folded, *self.operands]


class _Folder:
    """Takes rows one by one and returns them folded; at most one group is open.

    Args:
        operator: folds operands.
        mix_expiry: see ``MergeOperandSource``.
        keep_failed: if the operator fails, return the operands and the row below them unchanged.
    """

    def __init__(self, operator: MergeOperator, *, mix_expiry: bool, keep_failed: bool = False) -> None:
        self._operator = operator
        self._mix_expiry = mix_expiry
        self._keep_failed = keep_failed
        self._group: _OperandGroup | None = None
        self._count = 0
        self._failed = 0
        self._error: MergeOperatorFailed | None = None

    @property
    def is_open(self) -> bool:
        return self._group is not None

    def take_count(self) -> int:
        """Return the number of operands passed to the operator since the last call."""
        count, self._count = self._count, 0
        return count

    def take_failed(self) -> tuple[int, MergeOperatorFailed | None]:
        """Return the number of operands that stayed since the last call, and the first error."""
        failed, self._failed = (self._failed, self._error), 0
        self._error = None
        return failed

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
        self._group = _OperandGroup(entry)
        yield from self._add(self._group, entry)

    def finish(self) -> Iterable[Entry]:
        return () if self._group is None else self._close(self._group, base=None)

    def _matches(self, first: Entry, entry: Entry) -> bool:
        if entry.key != first.key:
            return False
        return self._mix_expiry or _expiry(first) == _expiry(entry)

    def _add(self, group: _OperandGroup, entry: Entry) -> Sequence[Entry]:
        """Add an operand; return the whole group if the operator fails."""
        group.operands.append(entry)
        if len(group.operands) >= BATCH_MAX:
            folded = self._try_fold(group.operands, FLAG_MERGE)
            if folded is None:
                return self._abandon_group(group)
            group.folded.append(folded)
            group.operands.clear()
        if len(group.folded) >= BATCH_MAX:
            folded = self._try_fold(group.folded, FLAG_MERGE)
            if folded is None:
                return self._abandon_group(group)
            group.folded = [folded]
        return ()

    def _close(self, group: _OperandGroup, base: Entry | None) -> Sequence[Entry]:
        versions = group.rows if base is None else [*group.rows, base]
        folded = self._try_fold(versions, FLAG_MERGE if base is None else 0)
        if folded is None:
            return [*self._abandon_group(group), *versions[len(group.rows) :]]
        self._group = None
        return [folded]

    def _abandon_group(self, group: _OperandGroup) -> Sequence[Entry]:
        self._group = None
        self._failed += len(group.rows)
        return group.rows

    def _try_fold(self, versions: Sequence[Entry], flags: int) -> Entry | None:
        """Return one row for all versions; ``None`` if the operator fails and they may stay."""
        self._count += sum(entry.is_merge for entry in versions)
        try:
            return _fold_one(versions, self._operator, flags)
        except MergeOperatorFailed as error:
            if not self._keep_failed:
                raise
            self._error = self._error or error
            return None


def _are_followed(rows: Rows, places: I64) -> BoolMask:
    """Return which rows have an older version of their key after them, or may have one in the next chunk.

    The others are single operands: folding them would change nothing.
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
    """Fold rows in memory, for instance the versions of one key, newest first."""
    folder = _Folder(operator, mix_expiry=mix_expiry)
    out = [folded for entry in versions for folded in folder.feed(entry, barrier)]
    out.extend(folder.finish())
    return out


def fold_visible(versions: Sequence[Entry], operator: MergeOperator) -> Entry:
    """Return the visible row of a key whose newest version is an operand.

    The result equals ``fold_versions`` with ``mix_expiry``; this is the short path of lookups.

    Args:
        versions: newest first; all are operands, except perhaps the last.
        operator: folds operands.
    """
    return _fold_one(versions, operator, 0)


def _fold_one(versions: Sequence[Entry], operator: MergeOperator, flags: int) -> Entry:
    """Return one row for the versions of a key, with ``flags`` and the flags of its times; see ``fold_visible``."""
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
