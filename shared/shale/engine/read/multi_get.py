"""Lookups of many keys at once.

One call of the lookup kernel answers every key whose blocks are in memory.  Where reads do not wait, the others take
turns of reads and of the kernel (``BatchLookup``).  Those that it cannot decide are searched one by one, in key order.
Other tasks run in between.  What is left waits for the store together.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import anyio.lowlevel

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.batch_lookup import BatchLookup
from shale.engine.read.lookup import (
    NOT_A_VALUE,
    FoundValue,
    PendingLookup,
    from_memtable,
    lookup_in_ssts,
    lookup_value,
    resume,
    value_of,
)
from shale.engine.read.pending_groups import PendingGroups
from shale.engine.read.read_options import ReadTable
from shale.engine.read.super_version import SuperVersion
from shale.errors import ResponseTooLarge
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout.point_lookup import NEED_BLOCK

_BATCH_KEYS_MAX = 4096
_BATCH_KEYS_FIRST = 128
"""Keys of the first batch of a ``get_many`` with a byte limit: the size of the values is unknown so far."""
_KERNEL_KEYS_MIN = 4
"""With fewer keys one call per key costs less than one call for all."""
_KEYS_BETWEEN_CHECKS = 32
"""Keys after which the size of the values is checked: each took a read, or is in memory."""
_VALUE_BYTES_MAX = 32 << 10
"""The size is checked after each larger value: it is a copy, also of what the cache holds."""
_BYTES_IN_TURN = 1 << 20
"""Values that are copied before other tasks run, with at least one more key to look for."""
_KEYS_IN_TURN = 256
"""Keys whose blocks are read before other tasks run: some milliseconds."""


async def get_many(
    view: SuperVersion,
    keys: Sequence[bytes],
    max_seq: int | None = None,
    *,
    now_ms: int | None = None,
    max_bytes: int | None = None,
    keep: bool = True,
) -> list[bytes | None]:
    """Return the visible value of each key, in the order given; see ``lookup`` for the arguments.

    Raises:
        ResponseTooLarge: the values together have more than ``max_bytes``; the rest was not read.
    """
    results: list[bytes | None] = []
    batch_keys = _BATCH_KEYS_MAX if max_bytes is None else _BATCH_KEYS_FIRST
    left = _BytesLeft(max_bytes)
    while len(results) < len(keys):
        batch = keys[len(results) : len(results) + batch_keys]
        values, is_complete = lookup_many(view, batch, max_seq, now_ms=now_ms, left=left)
        if not is_complete:
            await _complete(view, batch, values, max_seq, now_ms=now_ms, keep=keep, left=left)
        results += values  # type: ignore[arg-type]  # nothing is pending any more
        if max_bytes is not None:
            left.end_batch(values)
            batch_keys = min(4 * batch_keys, _BATCH_KEYS_MAX)
    return results


class _BytesLeft:
    """What all values may still have; ``max_bytes``: at first, ``None``: any."""

    __slots__ = ("_batch_bytes", "_left_bytes", "_max_bytes")

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._left_bytes = 0 if max_bytes is None else max_bytes
        self._batch_bytes = 0

    def check(self, values: Iterable[object]) -> None:
        """Check the values of a batch so far; other objects do not count.

        Raises:
            ResponseTooLarge: they have more than is left.
        """
        if self._max_bytes is not None:
            self._batch_bytes = 0
            self.add(values)

    def add(self, values: Iterable[object]) -> None:
        """Check more values of the same batch; raises like ``check``."""
        if self._max_bytes is None:
            return
        self._batch_bytes += sum([len(each) for each in values if type(each) is bytes])
        if self._batch_bytes > self._left_bytes:
            raise ResponseTooLarge(f"the values together have more than {self._max_bytes} bytes; ask for fewer keys")

    def end_batch(self, values: Iterable[object]) -> None:
        """Check all values of a batch, and begin the next one; raises like ``check``."""
        self.check(values)
        self._left_bytes -= self._batch_bytes


async def _complete(
    view: SuperVersion,
    keys: Sequence[bytes],
    values: list[FoundValue | int],
    max_seq: int | None,
    *,
    now_ms: int | None,
    keep: bool,
    left: _BytesLeft,
) -> None:
    """Replace every status in the place of a value by what the SSTs hold.

    Memtables are not searched again: while other tasks run, they may take writes that no key of this read has seen.
    """
    left.check(values)  # before any wait: a task that waits holds no more than it may have
    undecided = [place for place, value in enumerate(values) if type(value) is int]
    if view.reader.reads_now:  # neighbours are then in one block, which the cache holds for the next key
        undecided.sort(key=keys.__getitem__)
    ref = view.pin.acquire()
    if now_ms is None and keep and len(undecided) >= _KERNEL_KEYS_MIN and _reads_together(view):
        undecided = await _read_together(view, keys, values, undecided, max_seq, left=left)
        left.check(values)
    checked = copied_bytes = 0
    for number, place in enumerate(undecided):
        if (number and number % _KEYS_IN_TURN == 0) or copied_bytes > _BYTES_IN_TURN:
            copied_bytes = 0
            await anyio.lowlevel.checkpoint()
        if now_ms is None and keep:
            value: FoundValue = lookup_value(view, keys[place], max_seq, ())
        else:
            value = value_of(lookup_in_ssts(view, keys[place], max_seq, now_ms, keep=keep))
        values[place] = value
        size_bytes = len(value) if type(value) is bytes else 0
        copied_bytes += size_bytes
        if number + 1 - checked == _KEYS_BETWEEN_CHECKS or size_bytes > _VALUE_BYTES_MAX:
            left.add([values[each] for each in undecided[checked : number + 1]])
            checked = number + 1
    left.add([values[each] for each in undecided[checked:]])
    pending = {place: value for place, value in enumerate(values) if type(value) is PendingLookup}
    if pending:
        places, lookups, first = [*pending], [*pending.values()], 0
        groups = PendingGroups(view.reader, lookups)
        for end in [1] if len(lookups) == 1 else await groups.ends():
            entries = await resume(view, lookups[first:end], max_seq, now_ms=now_ms, keep=keep)
            for place, entry in zip(places[first:end], entries, strict=True):
                values[place] = None if entry is None else entry.value
            left.check(values)
            first = end
    del ref


def _reads_together(view: SuperVersion) -> bool:
    """Whether the kernel can look for many keys, and what it misses can be read without waiting."""
    return view.reader.reads_now and len(view.trees.lookups) == 1 and use_kernels()


async def _read_together(
    view: SuperVersion,
    keys: Sequence[bytes],
    values: list[FoundValue | int],
    undecided: list[int],
    max_seq: int | None,
    *,
    left: _BytesLeft,
) -> list[int]:
    """Decide what reads that do not wait can decide; return the places of the others."""
    trees = view.trees
    batch = BatchLookup(trees.lookups[0], view.reader, [keys[place] for place in undecided], trees.bound(max_seq))
    while not batch.is_over and view.pin.is_usable:
        batch.read_on()
        left.check(batch.values)
        await anyio.lowlevel.checkpoint()
    others: list[int] = []
    for place, value in zip(undecided, batch.values, strict=True):
        if type(value) is int:
            others.append(place)
        else:
            values[place] = value
    return others


def lookup_many(
    view: SuperVersion,
    keys: Sequence[bytes],
    max_seq: int | None = None,
    *,
    now_ms: int | None = None,
    left: _BytesLeft,
) -> tuple[list[FoundValue | int], bool]:
    """Find the newest visible values of many keys in memory, with one call of the kernel where that is possible.

    Args:
        view: what to search.
        keys: different keys.
        max_seq: see ``lookup``, as ``now_ms``.
        now_ms: as there.
        left: what all values may still have.

    Returns:
        Per key, in their order, the value, or a status of the kernel if it has to be looked up by itself; and whether
        none has.

    Raises:
        ResponseTooLarge: the values that memtables hold have more than is left; the rest was not copied.
    """
    left.check(())
    decided: dict[bytes, FoundValue] = {}
    below: Sequence[bytes] = keys
    for place, table in enumerate(view.tables):
        if len(table):
            decided |= _find_in_table(view, table, place, below, max_seq=max_seq, now_ms=now_ms, left=left)
            if decided:
                below = [key for key in keys if key not in decided]
    if not below:
        return [decided[key] for key in keys], False
    trees, is_complete = view.trees, False
    found: list[FoundValue | int] = [NEED_BLOCK] * len(below)
    if now_ms is None and len(trees.lookups) == 1 and len(below) >= _KERNEL_KEYS_MIN and use_kernels():
        answered, is_complete = trees.lookups[0].find_values([*below], trees.bound(max_seq))
        found = cast("list[FoundValue | int]", answered)
    if not decided:
        return found, is_complete
    answers = iter(found)
    return [decided[key] if key in decided else next(answers) for key in keys], False


def _find_in_table(
    view: SuperVersion,
    table: ReadTable,
    place: int,
    keys: Sequence[bytes],
    *,
    max_seq: int | None,
    now_ms: int | None,
    left: _BytesLeft,
) -> dict[bytes, FoundValue]:
    """Return the values of the keys that a memtable holds; raises like ``lookup_many``."""
    found: dict[bytes, FoundValue] = {}
    if type(table) is Memtable and table.is_only_log:
        index, flags, values = table.index, table.log.flags, table.log.values
        keys = [key for key in keys if key in index]
        if max_seq is None and now_ms is None:
            plain = [key for key in keys if not flags[index[key]] & NOT_A_VALUE]
            found.update([(key, values[index[key]]) for key in plain])
            if len(plain) == len(keys):
                return found
    for key in keys:
        if key not in found and (versions := table.get(key, max_seq)):
            value = value_of(from_memtable(view, versions, place + 1, max_seq, now_ms))
            found[key] = value
            left.add((value,))  # it may be a copy
    return found
