"""Point lookups in a super version.

``lookup`` searches memory only: memtables, then the cached blocks of SSTs.  Where it lacks a block it returns a
``PendingLookup``, the continuation that ``resume`` finishes with reads from the store.  A continuation holds the merge
operands found so far and the SSTs not searched yet, so no memtable is searched twice.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.level import VisibleSst
from shale.engine.read.read_options import ReadTable
from shale.engine.read.sst_versions import read_versions
from shale.engine.read.super_version import SuperVersion
from shale.engine.read.tree_lookup import TreeLookup, append_versions, block_span
from shale.errors import MergeOperatorMissing, ResponseTooLarge
from shale.iter.merge_operator import fold_visible
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout import point_lookup as layout
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

_NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE
_BATCH_KEYS_MAX = 4096
_BATCH_KEYS_FIRST = 128
"""Keys of the first batch of a ``get_many`` with a byte limit: the size of the values is unknown so far."""
_PARTS_MAX = 32
"""Parts that are read in turn for one key; with more, the cache holds too little, or many SSTs have no filter."""
_KERNEL_KEYS_MIN = 4
"""With fewer keys one call per key costs less than one call for all."""


class PendingLookup(NamedTuple):
    """A lookup that needs I/O: the operands found above, newest first, and the SSTs still to search, newest first."""

    key: bytes
    versions: Sequence[Entry]
    ssts: Sequence[VisibleSst]


Found: TypeAlias = Entry | PendingLookup | None
FoundValue: TypeAlias = bytes | PendingLookup | None


def lookup(view: SuperVersion, key: bytes, max_seq: int | None = None, *, now_ms: int | None = None) -> Found:
    """Find the newest visible version of a key in memory.

    Args:
        view: the state to search.
        key: not empty.
        max_seq: newer versions are invisible; ``None``: all versions are visible.
        now_ms: rows that have expired by then are invisible; ``None``: expired rows are visible.

    Returns:
        The row with its operands folded, ``None`` if the key has no value, or the continuation for ``resume``.

    Raises:
        MergeOperatorMissing: the newest version is an operand and the database has no merge operator.
        CorruptionError: a cached block is malformed.
    """
    for place, table in enumerate(view.tables):
        if versions := table.get(key, max_seq):
            return _from_memtable(view, versions, place + 1, max_seq, now_ms)
    return _from_ssts(view, key, max_seq, now_ms)


def lookup_value(
    view: SuperVersion, key: bytes, max_seq: int | None = None, tables: Sequence[ReadTable] | None = None
) -> FoundValue:
    """Find the newest visible value of a key in memory; see ``lookup``.

    Args:
        view, key, max_seq: see ``lookup``.
        tables: the last tables of the view, if the caller has searched the ones above; ``None``: all of them.
    """
    for table in view.tables if tables is None else tables:
        if max_seq is None and type(table) is Memtable and table.is_only_log:
            row = table.index.get(key)
            if row is None:
                continue
            if not table.log.flags[row] & _NOT_A_VALUE:
                return table.log.values[row]
        if versions := table.get(key, max_seq):
            return _value_of(_from_memtable(view, versions, view.tables.index(table) + 1, max_seq, None))
    trees = view.trees
    kernel = trees.value_kernel
    if kernel is None or max_seq is not None:
        return _value_of(_from_ssts(view, key, max_seq, None))
    found = kernel(key, trees.value_record)
    if type(found) is int:
        return _value_of(_from_status(view, key, found, trees.lookups, max_seq=max_seq))
    return found  # type: ignore[return-value]


def lookup_many(
    view: SuperVersion, keys: Sequence[bytes], max_seq: int | None = None, *, now_ms: int | None = None
) -> tuple[list[FoundValue], bool]:
    """Find the newest visible values of many keys in memory, with one call of the kernel where that is possible.

    Returns:
        The values in the order of the keys, and whether none of them is pending for certain.
    """
    if now_ms is not None:
        return [_value_of(lookup(view, key, max_seq, now_ms=now_ms)) for key in keys], False
    trees = view.trees
    if not use_kernels() or len(trees.lookups) != 1 or len(keys) < _KERNEL_KEYS_MIN:
        return [lookup_value(view, key, max_seq) for key in keys], False
    decided: dict[bytes, FoundValue] = {}
    below: Sequence[bytes] = keys
    for place, table in enumerate(view.tables):
        if len(table):
            _find_in_table(view, table, place, below, max_seq=max_seq, decided=decided)
            if decided:
                below = [key for key in keys if key not in decided]
    if not below:
        return [decided[key] for key in keys], False
    found, is_complete = trees.lookups[0].find_values([*below], trees.bound(max_seq))
    if is_complete and not decided:
        return found, True  # type: ignore[return-value]  # the common case: every block is cached
    answers = iter(found)
    results: list[FoundValue] = []
    for key in keys:
        value = decided[key] if key in decided else next(answers)
        if type(value) is int:
            value = _value_of(_from_status(view, key, value, trees.lookups, max_seq=max_seq))
        results.append(value)  # type: ignore[arg-type]
    return results, False


async def resume(
    view: SuperVersion, pending: Sequence[PendingLookup], max_seq: int | None = None, *, now_ms: int | None = None
) -> list[Entry | None]:
    """Finish lookups of one view with reads from the store, in at most two round trips.

    Args:
        view, max_seq, now_ms: those of the lookups.
        pending: the continuations.

    Raises:
        SstMissing: an SST is gone.
        CorruptionError: an SST is malformed.
    """
    ref = view.pin.acquire()
    is_simple = len(pending) == 1 and not pending[0].versions and len(view.trees.lookups) == 1
    if is_simple and view.reader.is_local and use_kernels():
        found = await _read_in_turn(view, pending[0].key, max_seq, now_ms)
        if type(found) is not PendingLookup:
            return [found]  # type: ignore[list-item]
    below = await read_versions(view.reader, [(each.key, each.ssts) for each in pending], view.trees.bound(max_seq))
    del ref
    return [_visible(view, [*each.versions, *versions], now_ms) for each, versions in zip(pending, below, strict=True)]


async def _read_in_turn(view: SuperVersion, key: bytes, max_seq: int | None, now_ms: int | None) -> Found:
    """Read what the kernel misses, one part after the other; return a continuation if that is not enough.

    For a local disk: the kernel asks for few parts, because it applies filters and stops at the newest version.
    """
    found = _from_ssts(view, key, max_seq, now_ms)
    for _ in range(_PARTS_MAX):
        # Nothing is awaited between the kernel's answer and ``load_missing``, which reads it.
        if type(found) is not PendingLookup or not await view.trees.lookups[0].load_missing(view.reader):
            break
        found = _from_ssts(view, key, max_seq, now_ms)
    return found


async def get(view: SuperVersion, key: bytes, max_seq: int | None = None, *, now_ms: int | None = None) -> Entry | None:
    """Return the newest visible version of a key; see ``lookup`` and ``resume``."""
    found = lookup(view, key, max_seq, now_ms=now_ms)
    return (await resume(view, [found], max_seq, now_ms=now_ms))[0] if type(found) is PendingLookup else found  # type: ignore[return-value]


async def get_many(
    view: SuperVersion,
    keys: Sequence[bytes],
    max_seq: int | None = None,
    *,
    now_ms: int | None = None,
    max_bytes: int | None = None,
) -> list[bytes | None]:
    """Return the visible value of each key, in the order given; see ``get``.

    Raises:
        ResponseTooLarge: the values together have more than ``max_bytes``; the rest was not read.
    """
    results: list[bytes | None] = []
    size, batch_keys = 0, _BATCH_KEYS_MAX if max_bytes is None else _BATCH_KEYS_FIRST
    while len(results) < len(keys):
        batch = keys[len(results) : len(results) + batch_keys]
        values, is_complete = lookup_many(view, batch, max_seq, now_ms=now_ms)
        if not is_complete:
            places = [place for place, value in enumerate(values) if type(value) is PendingLookup]
            if places:
                entries = await resume(view, [values[place] for place in places], max_seq, now_ms=now_ms)  # type: ignore[misc]
                for place, entry in zip(places, entries, strict=True):
                    values[place] = None if entry is None else entry.value
        results += values  # type: ignore[arg-type]  # nothing is pending any more
        if max_bytes is not None:
            size += sum([len(value) for value in results[len(results) - len(batch) :] if value is not None])
            if size > max_bytes:
                raise ResponseTooLarge(f"the values together have more than {max_bytes} bytes; ask for fewer keys")
            batch_keys = min(4 * batch_keys, _BATCH_KEYS_MAX)
    return results


def _from_memtable(
    view: SuperVersion, versions: Sequence[Entry], below: int, max_seq: int | None, now_ms: int | None
) -> Found:
    """Decide a lookup whose newest version is in a memtable; ``below`` is the place of the next table to search."""
    newest = versions[0]
    if newest.flags & FLAG_TOMBSTONE:
        return None
    if not newest.flags & FLAG_MERGE:
        return newest if now_ms is None or not _is_expired(newest, now_ms) else None
    key, found = newest.key, [*_down_to_value(versions)]
    for table in view.tables[below:]:
        if not found[-1].is_merge:
            break
        found += _down_to_value(table.get(key, max_seq))
    if not found[-1].is_merge:
        return _visible(view, found, now_ms)
    return _from_cached_blocks(view, PendingLookup(key, found, view.trees.candidates(key)), max_seq, now_ms)


def _from_ssts(view: SuperVersion, key: bytes, max_seq: int | None, now_ms: int | None) -> Found:
    """Decide a lookup of a key that no memtable holds."""
    if not use_kernels():
        return _from_cached_blocks(view, PendingLookup(key, (), view.trees.candidates(key)), max_seq, now_ms)
    trees, bound = view.trees.route(key), view.trees.bound(max_seq)
    for place, tree in enumerate(trees):
        found = tree.find(key, bound)
        if type(found) is not Entry:
            if found != layout.ABSENT:
                return _from_status(view, key, found, trees[place:], max_seq=max_seq, now_ms=now_ms)  # type: ignore[arg-type]
        elif found.flags & FLAG_TOMBSTONE:
            return None
        elif found.flags & FLAG_MERGE:
            return _from_status(view, key, layout.FOUND, trees[place:], max_seq=max_seq, now_ms=now_ms)
        else:
            return found if now_ms is None or not _is_expired(found, now_ms) else None
    return None


def _from_status(
    view: SuperVersion,
    key: bytes,
    status: int,
    trees: Sequence[TreeLookup],
    *,
    max_seq: int | None,
    now_ms: int | None = None,
) -> Found:
    """Go on where the kernel stopped in the first of these trees without a value.

    ``FOUND`` is a merge operand, which the kernel does not fold.  After ``CORRUPT`` the search in Python raises the
    error that names the byte.
    """
    pending = PendingLookup(key, (), [sst for tree in trees for sst in tree.candidates(key)])
    if status in (layout.NEED_META, layout.NEED_BLOCK):
        return pending
    return _from_cached_blocks(view, pending, max_seq, now_ms)


def _from_cached_blocks(view: SuperVersion, pending: PendingLookup, max_seq: int | None, now_ms: int | None) -> Found:
    """Search SSTs without the kernel, until one of them is not in memory."""
    key, found = pending.key, [*pending.versions]
    bound = view.trees.bound(max_seq)
    for place, sst in enumerate(pending.ssts):
        slot, meta, above = sst.slot, sst.slot.meta, len(found)
        if meta is None:
            return PendingLookup(key, found, pending.ssts[place:])
        for block in range(*(block_span(meta, key) or (0, 0))):
            image = slot.images.get(block)
            if image is None:  # the whole SST is searched again, so its versions found so far must not count twice
                return PendingLookup(key, found[:above], pending.ssts[place:])
            slot.touched[block] = 1
            if append_versions(found, key, bound, image=image, slot=slot, offset=int(meta.index.offsets[block])):
                return _visible(view, found, now_ms)
    return _visible(view, found, now_ms)


def _find_in_table(
    view: SuperVersion,
    table: ReadTable,
    place: int,
    keys: Sequence[bytes],
    *,
    max_seq: int | None,
    decided: dict[bytes, FoundValue],
) -> None:
    """Add the values of the keys that a memtable holds to ``decided``."""
    if type(table) is Memtable and table.is_only_log:
        index, flags, values = table.index, table.log.flags, table.log.values
        keys = [key for key in keys if key in index]
        if max_seq is None:
            plain = [key for key in keys if not flags[index[key]] & _NOT_A_VALUE]
            decided.update([(key, values[index[key]]) for key in plain])
            if len(plain) == len(keys):
                return
    for key in keys:
        if key not in decided and (versions := table.get(key, max_seq)):
            decided[key] = _value_of(_from_memtable(view, versions, place + 1, max_seq, None))


def _visible(view: SuperVersion, versions: Sequence[Entry], now_ms: int | None) -> Entry | None:
    """Fold the versions of a key, newest first, that end with the first one that is no operand.

    An expired value hides what is below it, as the tombstone does that a compaction will make of it.
    """
    if now_ms is not None:
        versions = [entry for entry in versions if entry.is_tombstone or not _is_expired(entry, now_ms)]
    if not versions or versions[0].is_tombstone:
        return None
    if not versions[0].is_merge:
        return versions[0]
    operator = view.options.merge_operator
    if operator is None:
        raise MergeOperatorMissing("the database holds merge operands: open it with a merge operator")
    return fold_visible(versions, operator)


def _down_to_value(versions: Sequence[Entry]) -> Sequence[Entry]:
    """Return the operands on top and the first version below them that is none."""
    for place, entry in enumerate(versions):
        if not entry.flags & FLAG_MERGE:
            return versions[: place + 1]
    return versions


def _is_expired(entry: Entry, now_ms: int) -> bool:
    return bool(entry.flags & FLAG_EXPIRE_TS) and entry.expire_ts <= now_ms


def _value_of(found: Found) -> FoundValue:
    return found.value if type(found) is Entry else found  # type: ignore[return-value]
