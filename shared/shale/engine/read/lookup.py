"""Point lookups in a super version.

``lookup`` searches memory: memtables, then the cached blocks of SSTs.  It reads a block that it lacks if that does not
wait, as from a local file in the page cache.  Otherwise it returns a ``PendingLookup``, the continuation that
``resume`` finishes with reads from the store.  A continuation holds the merge operands found so far and the SSTs not
searched yet, so no memtable is searched twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shale.core.lazy_names import import_at_call
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.level import VisibleSst
from shale.engine.read.read_options import ReadTable
from shale.engine.read.super_version import SuperVersion
from shale.engine.read.tree_lookup import PARTS_MAX, TreeLookup, append_versions, block_span
from shale.errors import MergeOperatorMissing
from shale.iter.merge_operator import fold_visible
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout import point_lookup as layout
from shale.telemetry import tracing
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

if TYPE_CHECKING:
    from shale.engine.read.sst_versions import read_versions
else:  # with the first lookup that waits for the store
    (read_versions,) = import_at_call(
        globals(),
        read_versions="shale.engine.read.sst_versions",
    )

NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE


class PendingLookup(NamedTuple):
    """A lookup that waits for I/O: the operands found above, newest first, and the SSTs still to search, newest first.

    ``tree`` is the one in which the kernel stopped at a part that is not in memory, if it was the kernel.
    """

    key: bytes
    versions: Sequence[Entry]
    ssts: Sequence[VisibleSst]
    tree: TreeLookup | None = None


Found: TypeAlias = Entry | PendingLookup | None
FoundValue: TypeAlias = bytes | PendingLookup | None


def lookup(
    view: SuperVersion, key: bytes, max_seq: int | None = None, *, now_ms: int | None = None, keep: bool = True
) -> Found:
    """Find the newest visible version of a key in memory.

    Args:
        view: the state to search.
        key: not empty.
        max_seq: newer versions are invisible; ``None``: all versions are visible.
        now_ms: rows that have expired by then are invisible; ``None``: expired rows are visible.
        keep: blocks that are read fill the cache; what does not wait is read here then.

    Returns:
        The row with its operands folded, ``None`` if the key has no value, or the continuation for ``resume``.

    Raises:
        MergeOperatorMissing: the newest version is an operand and the database has no merge operator.
        CorruptionError: a cached block is malformed.
    """
    for place, table in enumerate(view.tables):
        if versions := table.get(key, max_seq):
            return from_memtable(view, versions, place + 1, max_seq, now_ms, keep=keep)
    return lookup_in_ssts(view, key, max_seq, now_ms, keep=keep)


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
            if not table.log.flags[row] & NOT_A_VALUE:
                return table.log.values[row]
        if versions := table.get(key, max_seq):
            return value_of(from_memtable(view, versions, view.tables.index(table) + 1, max_seq, None))
    trees = view.trees
    kernel = trees.value_kernel
    if kernel is None or max_seq is not None:
        return value_of(lookup_in_ssts(view, key, max_seq, None))
    found = kernel(key, trees.value_record)
    return finish_value(view, key, found) if type(found) is int else found  # type: ignore[return-value]


def finish_value(view: SuperVersion, key: bytes, status: int) -> FoundValue:
    """Go on where the kernel that finds values stopped in the SSTs with this status."""
    trees = view.trees
    tree, kernel = trees.lookups[0], trees.value_kernel
    assert kernel is not None, "the kernel has just returned the status"
    last: list[int] = []
    for _ in range(PARTS_MAX):
        part = tree.load_missing_now(status, view.reader, view.pin, last)
        if part is None:
            break
        last = part
        found = kernel(key, trees.value_record)
        tree.unmark_loaded()
        if type(found) is not int:
            return found  # type: ignore[return-value]
        status = found
    return value_of(_from_status(view, key, status, trees.lookups, max_seq=None))


async def resume(
    view: SuperVersion,
    pending: Sequence[PendingLookup],
    max_seq: int | None = None,
    *,
    now_ms: int | None = None,
    keep: bool = True,
) -> list[Entry | None]:
    """Finish lookups of one view with reads from the store, in at most two round trips.

    Args:
        view, max_seq, now_ms: those of the lookups.
        pending: the continuations.
        keep: blocks that are read fill the cache.

    Raises:
        SstMissing: an SST is gone.
        CorruptionError: an SST is malformed.
    """
    if tracing.active() is None:
        return await _read_and_find(view, pending, max_seq, now_ms, keep=keep)
    ssts = max([len(each.ssts) for each in pending], default=0)
    with tracing.step("lookup", **{"slatedb.keys": len(pending), "slatedb.ssts": ssts}):
        return await _read_and_find(view, pending, max_seq, now_ms, keep=keep)


async def _read_and_find(
    view: SuperVersion, pending: Sequence[PendingLookup], max_seq: int | None, now_ms: int | None, *, keep: bool
) -> list[Entry | None]:
    ref = view.pin.acquire()
    is_local = view.reader.is_local and view.reader.cache.capacity_bytes
    if keep and len(pending) == 1 and pending[0].tree is not None and is_local:
        found = await _read_in_turn(view, pending[0], max_seq, now_ms)
        if type(found) is not PendingLookup:
            return [found]  # type: ignore[list-item]
    bound = view.trees.bound(max_seq)

    def find(place: int) -> Entry | int:
        return _find_in_cache(view, pending[place], bound)

    below = await read_versions(view.reader, [(each.key, each.ssts) for each in pending], bound, find, keep=keep)
    del ref
    return [_visible(view, [*each.versions, *versions], now_ms) for each, versions in zip(pending, below, strict=True)]


def _find_in_cache(view: SuperVersion, pending: PendingLookup, bound: int) -> Entry | int:
    """Find a value or a tombstone with the kernel; return ``ABSENT`` or the status that leaves it undecided."""
    if not pending.versions and use_kernels():
        for tree in view.trees.route(pending.key):
            found = tree.find(pending.key, bound)
            if type(found) is Entry:
                return layout.FOUND if found.flags & FLAG_MERGE else found
            if found != layout.ABSENT:
                return found
        return layout.ABSENT
    return layout.NEED_BLOCK


async def _read_in_turn(view: SuperVersion, pending: PendingLookup, max_seq: int | None, now_ms: int | None) -> Found:
    """Read what the kernel misses, one part after the other; return a continuation if that is not enough.

    For a local disk: the kernel asks for few parts, because it applies filters and stops at the newest version.
    """
    found = lookup_in_ssts(view, pending.key, max_seq, now_ms, reads_now=False)
    last = dict[TreeLookup, list[int]]()
    for _ in range(PARTS_MAX):
        if type(found) is not PendingLookup or found.tree is None:
            break
        # Nothing is awaited between the kernel's answer and ``load_missing``, which reads it.
        tree = found.tree
        part = await tree.load_missing(view.reader, last.get(tree, []))
        if part is None:
            break
        last[tree] = part
        found = lookup_in_ssts(view, pending.key, max_seq, now_ms, reads_now=False)
        tree.unmark_loaded()
    return found


async def get(
    view: SuperVersion, key: bytes, max_seq: int | None = None, *, now_ms: int | None = None, keep: bool = True
) -> Entry | None:
    """Return the newest visible version of a key; see ``lookup`` and ``resume``."""
    found = lookup(view, key, max_seq, now_ms=now_ms, keep=keep)
    if type(found) is not PendingLookup:
        return found  # type: ignore[return-value]
    return (await resume(view, [found], max_seq, now_ms=now_ms, keep=keep))[0]


def from_memtable(
    view: SuperVersion,
    versions: Sequence[Entry],
    below: int,
    max_seq: int | None,
    now_ms: int | None,
    *,
    keep: bool = True,
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
    pending = PendingLookup(key, found, view.trees.candidates(key))
    return _from_cached_blocks(view, pending, max_seq, now_ms, keep=keep)


def lookup_in_ssts(
    view: SuperVersion,
    key: bytes,
    max_seq: int | None,
    now_ms: int | None,
    *,
    reads_now: bool = True,
    keep: bool = True,
) -> Found:
    """Decide a lookup of a key that no memtable holds.

    Args:
        view, key, max_seq, now_ms, keep: see ``lookup``.
        reads_now: read what the kernel misses, if that does not wait.
    """
    if not use_kernels():
        pending = PendingLookup(key, (), view.trees.candidates(key))
        return _from_cached_blocks(view, pending, max_seq, now_ms, keep=keep)
    trees, bound = view.trees.route(key), view.trees.bound(max_seq)
    for place, tree in enumerate(trees):
        found = tree.find(key, bound)
        if reads_now and keep and type(found) is int and found != layout.ABSENT:
            found = tree.find_with_reads(key, bound, found, view.reader, view.pin)
        if type(found) is not Entry:
            if found != layout.ABSENT:
                left = trees[place:]
                return _from_status(view, key, found, left, max_seq=max_seq, now_ms=now_ms, keep=keep)  # type: ignore[arg-type]
        elif found.flags & FLAG_TOMBSTONE:
            return None
        elif found.flags & FLAG_MERGE:
            status = layout.FOUND
            return _from_status(view, key, status, trees[place:], max_seq=max_seq, now_ms=now_ms, keep=keep)
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
    keep: bool = True,
) -> Found:
    """Go on where the kernel stopped in the first of these trees without a value.

    ``FOUND`` is a merge operand, which the kernel does not fold.  After ``CORRUPT`` the search in Python raises the
    error that names the byte.
    """
    ssts = [sst for tree in trees for sst in tree.candidates(key)]
    if status in (layout.NEED_META, layout.NEED_BLOCK):
        return PendingLookup(key, (), ssts, trees[0])
    pending = PendingLookup(key, (), ssts)
    return _from_cached_blocks(view, pending, max_seq, now_ms, keep=keep)


def _from_cached_blocks(
    view: SuperVersion, pending: PendingLookup, max_seq: int | None, now_ms: int | None, *, keep: bool = True
) -> Found:
    """Search SSTs without the kernel, until a read of one of them would wait."""
    key, found = pending.key, [*pending.versions]
    bound, reader = view.trees.bound(max_seq), view.reader
    parts_left = PARTS_MAX if keep and view.pin.is_usable else 0
    for place, sst in enumerate(pending.ssts):
        slot, meta, above = sst.slot, sst.slot.meta, len(found)
        if meta is None and parts_left > 0:
            meta = reader.metadata.load_now(slot)
            parts_left -= 1
        if meta is None:
            return PendingLookup(key, found, pending.ssts[place:])
        for block in range(*(block_span(meta, key) or (0, 0))):
            image = slot.images.get(block)
            if image is not None:
                slot.touched[block] = 1
            elif parts_left > 0:
                image = reader.local_blocks.read_now(slot, meta, block)
                parts_left -= 1
            if image is None:  # the whole SST is searched again, so its versions found so far must not count twice
                return PendingLookup(key, found[:above], pending.ssts[place:])
            if append_versions(found, key, bound, image=image, slot=slot, offset=int(meta.index.offsets[block])):
                return _visible(view, found, now_ms)
    return _visible(view, found, now_ms)


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


def value_of(found: Found) -> FoundValue:
    return found.value if type(found) is Entry else found  # type: ignore[return-value]
