"""One state of a database, ready to be read: memtables above the SSTs of one manifest.

A view never changes (an active memtable in it grows, but ``max_seq`` says how far one looks).  A new manifest or a
frozen memtable makes a new view; whoever still iterates keeps the old one, and with it all that it needs.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from shale.engine.memtable import Memtable
from shale.engine.pin import Pin
from shale.engine.point_read import read_versions
from shale.engine.read_options import ReadOptions, ReadTable
from shale.engine.read_point import ReadPoint
from shale.engine.scan import Scan
from shale.engine.tree_lookup import TreeLookup, Window, append_versions, block_span
from shale.errors import MergeOperatorMissing, ValuesTooLarge
from shale.iter.merge_operator import fold_visible
from shale.kernels import lookup_layout as layout
from shale.sst.reader import SstReader
from shale.sst.slot import address_of
from shale.types import EVERYTHING, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange, Manifest, Tree

if TYPE_CHECKING:
    from shale.engine.hot_path import LookupValue

_NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE
_KEYS_AT_ONCE = 4096
_KEYS_AT_FIRST = 128
"""Where the values shall not be too large together, nobody knows yet how large they are."""
_UNDECIDED = -1
_KERNEL_KEYS_MIN = 4
"""Fewer are looked up one by one: a call for many has some fixed cost."""


class NeedsIo(Enum):
    """The type of ``NEEDS_IO``."""

    NEEDS_IO = "needs I/O"


NEEDS_IO: Final = NeedsIo.NEEDS_IO
"""What ``try_get`` answers when something has to be read from the store first."""


class ReadView:
    """Reads of one state."""

    __slots__ = (
        "__weakref__",
        "_last_l0_seq",
        "_lookup_value",
        "_prefixes",
        "_record",
        "_record_words",
        "_trees",
        "manifest",
        "newest",
        "older",
        "options",
        "own",
        "pin",
        "reader",
        "tables",
    )

    def __init__(
        self,
        manifest: Manifest,
        tables: Sequence[ReadTable],
        reader: SstReader,
        options: ReadOptions,
        *,
        pin: Pin | None = None,
        previous: "ReadView | None" = None,
        own: ReadTable | None = None,
    ) -> None:
        """Make no request.

        Args:
            manifest: names the SSTs.
            tables: memtables, newest first.
            reader: reads SSTs.
            options: of the handle.
            pin: what keeps the SSTs from being collected, and learns who reads; ``None``: the caller sees to it.
            previous: an older view of the same handle, whose lookups of unchanged trees are taken over.
            own: what a transaction has written, above everything and visible at any ``max_seq``.
        """
        self.manifest = manifest
        self.own = own
        self.tables = tuple(tables) if own is None else (own, *tables)
        newest = self.tables[0] if self.tables else None
        self.newest = newest if type(newest) is Memtable else None
        """For who looks there first; ``None`` if a lookup must not, and ``older`` is what is below it."""
        self.older = self.tables[1:]
        self.reader = reader
        self.options = options
        self.pin = pin if pin is not None else Pin()
        self._last_l0_seq = manifest.last_l0_seq
        self._lookup_value: LookupValue | None = None
        self._prefixes: list[bytes] = []
        self._trees: list[TreeLookup] = []
        if previous is not None and previous.manifest is manifest:
            self._prefixes, self._trees = previous._prefixes, previous._trees
            return
        reader.follow(manifest)
        known = {} if previous is None else dict(zip(previous._prefixes, previous._trees, strict=True))
        for prefix, tree in manifest.trees():
            if prefix or not manifest.segments or not tree.is_empty:
                old = known.get(prefix)
                self._prefixes.append(prefix)
                self._trees.append(old if old is not None and old.tree == tree else TreeLookup(tree, reader))

    def try_get(self, key: bytes, max_seq: int | None = None) -> Entry | NeedsIo | None:
        """The newest visible version of a key, if that can be said without reading.

        Args:
            key: not empty.
            max_seq: versions above are invisible; ``None``: none is.

        Returns:
            A value (operands folded), ``None`` if there is none, or ``NEEDS_IO``.

        Raises:
            MergeOperatorMissing: the newest version is an operand and there is no operator.
            CorruptionError: a block in memory is malformed.
        """
        for table in self.tables:
            versions = table.get(key, max_seq)
            if versions:
                newest = versions[0]
                if not newest.flags & _NOT_A_VALUE:
                    return newest
                if newest.flags & FLAG_TOMBSTONE:
                    return None
                below = self.tables[self.tables.index(table) + 1 :]
                return self._try_versions(key, max_seq, above=_down_to_value(versions), tables=below)
        lookup = self.options.hot_path.lookup
        if lookup is None:
            self.options.hot_path.note_plain_lookup()
            return self._try_versions(key, max_seq)
        limit = self._last_l0_seq if max_seq is None or max_seq > self._last_l0_seq else max_seq
        for tree in self._trees if len(self._trees) == 1 else self._route(key):
            found = tree.find(lookup, key, limit)
            if type(found) is Entry:
                if found.flags & _NOT_A_VALUE:
                    return None if found.flags & FLAG_TOMBSTONE else self._try_versions(key, max_seq)
                return found
            if found != layout.ABSENT:
                return NEEDS_IO if found != layout.CORRUPT else self._try_versions(key, max_seq)
        return None

    def try_value(
        self, key: bytes, max_seq: int | None = None, tables: Sequence[ReadTable] | None = None
    ) -> bytes | NeedsIo | None:
        """The value of ``try_get``, at less cost where it is the newest one.

        Args:
            key, max_seq: see there.
            tables: what can have the key, as ``older`` does if ``newest`` does not; ``None``: all.
        """
        for table in self.tables if tables is None else tables:
            if max_seq is None and type(table) is Memtable:
                try:
                    value = table.newest_value(key)
                except LookupError:
                    return self._try_value(key, max_seq)
                if value is not None:
                    return value
            elif table.get(key, max_seq):
                return self._try_value(key, max_seq)
        lookup_value = self._lookup_value
        if lookup_value is None or max_seq is not None:
            self._use_kernel()
            return self._try_value(key, max_seq)
        found = lookup_value(key, self._record)
        return self._try_value(key, max_seq) if type(found) is int else found  # type: ignore[return-value]

    def above(self, own: ReadTable) -> "ReadView":
        """This view with the writes of a transaction on top.

        Its ``get`` and ``parts`` give them whatever ``max_seq`` is, with sequence numbers above all others.
        """
        return ReadView(
            self.manifest,
            self.tables if self.own is None else self.tables[1:],
            self.reader,
            self.options,
            pin=self.pin,
            previous=self,
            own=own,
        )

    async def get(self, key: bytes, max_seq: int | None = None, *, now_ms: int | None = None) -> Entry | None:
        """The newest visible version of a key; see ``try_get``.

        Args:
            key: not empty.
            max_seq: versions above are invisible.
            now_ms: rows that have expired by then are invisible; ``None``: they are shown.

        Raises:
            SstMissing: an SST is gone.
        """
        found = self.try_get(key, max_seq) if now_ms is None else self._try_versions(key, max_seq, now_ms)
        return (await self._read([key], max_seq, now_ms))[0] if found is NEEDS_IO else found

    async def get_many(
        self,
        keys: Sequence[bytes],
        max_seq: int | None = None,
        *,
        now_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> list[bytes | None]:
        """The visible value of each key, in the order given; see ``get``.

        Raises:
            ValuesTooLarge: they have more than ``max_bytes`` together; the rest was not read.
        """
        results: list[bytes | None] = []
        size, at_once = 0, _KEYS_AT_ONCE if max_bytes is None else _KEYS_AT_FIRST
        while len(results) < len(keys):
            part = keys[len(results) : len(results) + at_once]
            values, is_all = self._try_values(part, max_seq, now_ms)
            missing = [] if is_all else [index for index, value in enumerate(values) if value is NEEDS_IO]
            if missing:
                entries = await self._read([part[index] for index in missing], max_seq, now_ms)
                for index, entry in zip(missing, entries, strict=True):
                    values[index] = None if entry is None else entry.value
            results += values  # type: ignore[arg-type]  # nothing needs I/O any more
            if max_bytes is not None:
                size += sum([len(value) for value in results[len(results) - len(part) :] if value is not None])
                if size > max_bytes:
                    raise ValuesTooLarge(f"the values together have more than {max_bytes} bytes; ask for fewer keys")
                at_once = min(4 * at_once, _KEYS_AT_ONCE)
        return results

    def scan(
        self,
        key_range: KeyRange = EVERYTHING,
        *,
        max_seq: int | None = None,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        now_ms: int | None = None,
    ) -> Scan:
        """The visible rows of a range, by key; nothing is read before the first row is asked for.

        Args:
            key_range: which keys.
            max_seq: versions above are invisible; ``None``: none is.
            prefix: all keys in the range begin with it; lets filters exclude SSTs.
            reverse: from the greatest key down.
            limit: rows at most.
            now_ms: rows that have expired by then are invisible.
        """
        return Scan(ReadPoint(self, max_seq), key_range, prefix=prefix, reverse=reverse, limit=limit, now_ms=now_ms)

    def trees_in(self, key_range: KeyRange) -> Iterator[tuple[bytes, KeyRange, Tree]]:
        """The trees that hold keys of the range, by prefix, with the part of the range that each can hold."""
        for prefix, lookup in zip(self._prefixes, self._trees, strict=True):
            part = key_range.intersect(KeyRange.with_prefix(prefix))
            if not part.is_empty and not lookup.tree.is_empty:
                yield prefix, part, lookup.tree

    def _use_kernel(self) -> None:
        """Let ``try_value`` use the kernel, if it is loaded and the view has one tree."""
        hot_path = self.options.hot_path
        if hot_path.lookup_value is not None and self._lookup_value is None and len(self._trees) == 1:
            self._record_words = self._trees[0].record(self._last_l0_seq)
            self._record = address_of(self._record_words)
            self._lookup_value = hot_path.lookup_value

    def _try_values(
        self, keys: Sequence[bytes], max_seq: int | None, now_ms: int | None
    ) -> tuple[list[bytes | NeedsIo | None], bool]:
        """What can be said of many keys without reading, and whether that is known to be all.

        It is one call of the kernel where that is possible.
        """
        if now_ms is not None:
            return self._try_unexpired(keys, max_seq, now_ms), False
        lookup_many = self.options.hot_path.lookup_many
        if lookup_many is None or len(self._trees) != 1 or len(keys) < _KERNEL_KEYS_MIN:
            return [self._try_value(key, max_seq) for key in keys], False
        in_tables: set[bytes] = set()
        if any(map(len, self.tables)):
            in_tables = {key for table in self.tables for key in keys_in(table, keys, max_seq)}
        below = [key for key in keys if key not in in_tables] if in_tables else [*keys]
        found, is_all = self._trees[0].find_values(lookup_many, below, self._sst_limit(max_seq))
        if is_all and not in_tables:
            return found, True  # type: ignore[return-value]  # the common case: all of it is in memory, in SSTs
        answers = iter(found)
        results: list[bytes | NeedsIo | None] = []
        for key in keys:
            value = _UNDECIDED if key in in_tables else next(answers)
            results.append(self.try_value(key, max_seq) if type(value) is int else value)  # type: ignore[arg-type]
        return results, False

    def _try_unexpired(self, keys: Sequence[bytes], max_seq: int | None, now_ms: int) -> list[bytes | NeedsIo | None]:
        found = [self._try_versions(key, max_seq, now_ms) for key in keys]
        return [entry.value if type(entry) is Entry else entry for entry in found]  # type: ignore[misc]

    def _try_value(self, key: bytes, max_seq: int | None) -> bytes | NeedsIo | None:
        found = self.try_get(key, max_seq)
        return found.value if type(found) is Entry else found  # type: ignore[return-value]

    def _route(self, key: bytes) -> list[TreeLookup]:
        """The trees that can hold a key: the segment with its prefix, and the root tree if it is in use."""
        at = bisect_right(self._prefixes, key) - 1
        trees = [self._trees[at]] if at >= 0 and key.startswith(self._prefixes[at]) else []
        if at > 0 and not self._prefixes[0]:
            trees.append(self._trees[0])
        return trees

    def _windows(self, key: bytes) -> list[Window]:
        return [window for tree in self._route(key) for window in tree.candidates(key)]

    def _try_versions(
        self,
        key: bytes,
        max_seq: int | None,
        now_ms: int | None = None,
        *,
        above: Sequence[Entry] = (),
        tables: Sequence[ReadTable] | None = None,
    ) -> Entry | NeedsIo | None:
        """All versions that matter, without the kernel, from what is in memory.

        Args:
            above: versions that were found already, and
            tables: the ones below these; ``None``: all.
        """
        found = [*above]
        if not found or found[-1].is_merge:
            found += self._table_versions(key, max_seq, self.tables if tables is None else tables)
        if found and not found[-1].is_merge:
            return self._visible(found, now_ms)
        limit = self._sst_limit(max_seq)
        for window in self._windows(key):
            slot, meta = window.slot, window.slot.meta
            if meta is None:
                return NEEDS_IO
            for block in range(*(block_span(meta, key) or (0, 0))):
                image = slot.images.get(block)
                if image is None:
                    return NEEDS_IO
                slot.touched[block] = 1
                if append_versions(found, key, limit, image=image, slot=slot, offset=int(meta.index.offsets[block])):
                    return self._visible(found, now_ms)
        return self._visible(found, now_ms)

    async def _read(self, keys: Sequence[bytes], max_seq: int | None, now_ms: int | None) -> list[Entry | None]:
        tables = [self._table_versions(key, max_seq, self.tables) for key in keys]
        lookups = [
            (key, self._windows(key) if not found or found[-1].is_merge else ())
            for key, found in zip(keys, tables, strict=True)
        ]
        use = self.pin.use()
        below = await read_versions(self.reader, lookups, self._sst_limit(max_seq))
        del use
        return [self._visible([*above, *deeper], now_ms) for above, deeper in zip(tables, below, strict=True)]

    def _table_versions(self, key: bytes, max_seq: int | None, tables: Sequence[ReadTable]) -> list[Entry]:
        """Versions in memtables, newest first, down to the first that is no operand."""
        found: list[Entry] = []
        for table in tables:
            if versions := table.get(key, max_seq):
                found += _down_to_value(versions)
                if not found[-1].is_merge:
                    break
        return found

    def _sst_limit(self, max_seq: int | None) -> int:
        """Rows in SSTs above ``last_l0_seq`` are invisible (docs/format.md 4.2)."""
        return self._last_l0_seq if max_seq is None else min(max_seq, self._last_l0_seq)

    def _visible(self, versions: Sequence[Entry], now_ms: int | None = None) -> Entry | None:
        """What a caller sees of versions, newest first, that end with the first that is no operand.

        An expired value hides what is below it, as it will once a compaction has made a tombstone of it.
        """
        if now_ms is not None:
            versions = [entry for entry in versions if entry.is_tombstone or not _is_expired(entry, now_ms)]
        if not versions or versions[0].is_tombstone:
            return None
        if not versions[0].is_merge:
            return versions[0]
        operator = self.options.merge_operator
        if operator is None:
            raise MergeOperatorMissing("the database holds merge operands: open it with a merge operator")
        return fold_visible(versions, operator)


def _down_to_value(versions: Sequence[Entry]) -> Sequence[Entry]:
    """The first version that is no operand, and what is above it."""
    for place, entry in enumerate(versions):
        if not entry.flags & FLAG_MERGE:
            return versions[: place + 1]
    return versions


def _is_expired(entry: Entry, now_ms: int) -> bool:
    return bool(entry.flags & FLAG_EXPIRE_TS) and entry.expire_ts <= now_ms


def keys_in(table: ReadTable, keys: Sequence[bytes], max_seq: int | None) -> list[bytes]:
    """Those of the keys that have a visible version in a table."""
    if type(table) is Memtable and table.is_only_log:
        keys = [key for key in keys if key in table.index]
        if max_seq is None:
            return list(keys)
    return [key for key in keys if table.get(key, max_seq)]
