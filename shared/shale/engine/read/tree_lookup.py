"""The SSTs of a manifest as point lookups see them: trees, their levels in order of precedence, and address tables.

Built once per manifest and never changed.  Only the slots change, as blocks enter and leave the cache.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

import numpy as np

from shale.engine.read.level import Level, VisibleSst, levels_of
from shale.engine.read.pins import Pin
from shale.errors import CorruptionError
from shale.format.blocks.plain import decode_block_plain
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import point_lookup as layout
from shale.kernels.rows import I64
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.slot import META, SstSlot
from shale.types import U64_MAX, Entry, KeyRange, Manifest, Tree

_LANES = np.zeros((layout.LANES, layout.OUT_WORDS), np.int64)
"""Search state of ``lookup_many``, for all threads: the kernel holds the interpreter lock while it runs."""
_LANES_ADDRESS = address_of(_LANES)


_MISSING = (layout.NEED_BLOCK, layout.NEED_META)
PARTS_MAX = 32
"""Parts that are read in turn for one key; with more, the cache holds too little, or many SSTs have no filter."""


class TreeLookup:
    """The levels of one tree, newest first, and the tables that the lookup kernel walks."""

    __slots__ = (
        "_counts",
        "_level_table",
        "_loaded",
        "_missing",
        "_out",
        "_slots",
        "_table",
        "counts_address",
        "level_words",
        "levels",
        "tree",
    )

    def __init__(self, tree: Tree, reader: SstReader, previous: "TreeLookup | None" = None) -> None:
        """Make no request; levels that ``previous`` has as well are taken over from there."""
        self.tree = tree
        self._counts = reader.counts.kernel
        self.levels: tuple[Level, ...] = tuple(levels_of(tree, reader, () if previous is None else previous.levels))
        self._slots = [level.slots for level in self.levels]
        self._loaded: tuple[bytearray, int] | None = None
        self._build_table()

    def candidates(self, key: bytes) -> Iterator[VisibleSst]:
        """Return the SSTs that show the key, newest first."""
        for level in self.levels:
            yield from level.candidates(key)

    def find(self, key: bytes, max_seq: int) -> Entry | int:
        """Return the newest row of a key at or below ``max_seq``, or the status of the kernel if it found none."""
        status = compiled.lookup(key, max_seq, self._table, len(self.levels), self.counts_address)
        if status != layout.FOUND:
            return status
        level, sst, block, at, size, seq, flags, create_ts, expire_ts = self._out.tolist()
        value = self._slots[level][sst].images[block][at : at + size]
        return tuple.__new__(Entry, (key, value, seq & U64_MAX, flags, create_ts, expire_ts))

    def find_with_reads(self, key: bytes, max_seq: int, status: int, reader: SstReader, pin: Pin) -> Entry | int:
        """Go on where ``find`` stopped with this status: read what is missing, as long as that does not wait."""
        found: Entry | int = status
        last: list[int] = []
        for _ in range(PARTS_MAX):
            if type(found) is Entry:
                break
            part = self.load_missing_now(found, reader, pin, last)  # type: ignore[arg-type]
            if part is None:
                break
            last = part
            found = self.find(key, max_seq)
            self.unmark_loaded()
        return found

    def load_missing_now(self, status: int, reader: SstReader, pin: Pin, last: list[int]) -> list[int] | None:
        """Read the part that the kernel has just missed into the cache, if that does not wait.

        What it counts as misses is not counted again as hits, when the kernel finds it there.

        Args:
            status: what the kernel returned; nothing is missing unless it is ``NEED_META`` or ``NEED_BLOCK``.
            reader: reads SSTs.
            pin: protects the SSTs; unless it is usable, lookups wait.
            last: the part that was read before for this lookup, or an empty list.

        Returns:
            The part, if the kernel will find it.
        """
        if status not in _MISSING or not pin.is_usable:
            return None
        part = self._missing_part()
        return part if part > last and self.load_part_now(reader, *part) else None

    def _missing_part(self) -> list[int]:
        """Return level, SST and block that the kernel has just missed.

        The kernel asks for parts in ascending order.  If it goes back, the cache has evicted one of this lookup for
        another one, and to go on would read them in turns.
        """
        part: list[int] = self._missing.tolist()
        level, sst, _ = part
        if self._slots[level][sst].meta is None:
            part[2] = META
        return part

    def load_part_now(
        self, reader: SstReader, level: int, sst: int, block: int, *, prefix: bytes | None = None
    ) -> bool:
        """Read the metadata of an SST or, if it is there, a block into the cache, if that does not wait.

        ``prefix``: no block of an SST whose filters exclude it.
        """
        if not reader.cache.capacity_bytes:
            return False
        slot, counts = self._slots[level][sst], reader.counts
        meta = slot.meta
        if meta is None:
            meta = reader.metadata.load_now(slot)
            if meta is not None and slot.meta is not None:
                counts.index_hits -= 1
                counts.filter_hits -= int(meta.filters.answers_keys)
        elif prefix is not None and not meta.filters.may_contain_prefix(prefix):
            return False
        elif (
            block < len(meta.index)
            and block not in slot.images
            and reader.local_blocks.read_now(slot, meta, block) is not None
        ):
            counts.block_hits -= 1
            self._loaded = (slot.touched, block) if block in slot.images else None
            return self._loaded is not None
        else:
            return False
        return slot.meta is not None

    def load_meta_now(self, reader: SstReader, level: int, sst: int) -> bool:
        """Read the metadata of an SST into the cache, if that does not wait; return whether it is there."""
        return self._slots[level][sst].meta is not None or self.load_part_now(reader, level, sst, META)

    def load_blocks_now(
        self, reader: SstReader, level: int, sst: int, blocks: I64, bytes_max: int
    ) -> tuple[int, int, bool]:
        """Read ascending blocks of an SST into the cache, if that does not wait.

        Returns:
            How many of them are there, at least one unless it is refused; the stored bytes of these; and whether the
            next one would wait or is damaged.
        """
        slot = self._slots[level][sst]
        meta = slot.meta
        if meta is None or not reader.cache.capacity_bytes:
            return 0, 0, True
        offsets = meta.index.offsets
        sizes = (offsets[1:][blocks] - offsets[blocks]).cumsum()
        wanted = max(1, int(sizes.searchsorted(bytes_max, "right")))
        missing = np.array([block not in slot.images for block in blocks[:wanted].tolist()], bool)
        places = np.flatnonzero(missing)
        read = reader.local_blocks.read_many_now(slot, meta, blocks[places].tolist()) if len(places) else 0
        reader.counts.block_hits -= read
        count = wanted if read == len(places) else int(places[read])
        return count, int(sizes[count - 1]) if count else 0, count < wanted

    def unmark(self, level: int, sst: int, blocks: I64) -> None:
        """Take back that blocks were used: being read once is no reason to stay."""
        touched = self._slots[level][sst].touched
        if touched:
            np.frombuffer(touched, np.uint8)[blocks] = 0

    def unmark_loaded(self) -> None:
        """Take back that the kernel has used the block that was loaded for it: being read once is no reason to stay."""
        if self._loaded is not None:
            touched, block = self._loaded
            touched[block] = 0
            self._loaded = None

    async def load_missing(self, reader: SstReader, last: list[int]) -> list[int] | None:
        """Do the same as ``load_missing_now`` with a read that may wait.

        The kernel must have just returned ``NEED_META`` or ``NEED_BLOCK``.
        """
        part = self._missing_part()
        level, sst, block = part
        slot, counts = self._slots[level][sst], reader.counts
        if part <= last:
            return None
        meta = slot.meta
        if meta is None:
            loaded = await reader.metadata.load(slot)
            if slot.meta is None:
                return None
            counts.index_hits -= 1
            counts.filter_hits -= int(loaded.filters.answers_keys)
            return part
        if block in slot.images or block >= len(meta.index):
            return None
        await reader.data_blocks.images(slot, meta, block, block + 1)
        if block not in slot.images:
            return None
        counts.block_hits -= 1
        self._loaded = (slot.touched, block)
        return part

    def value_record(self, max_seq: int) -> I64:
        """Return the arguments of the ``lookup_value`` kernel for values at or below ``max_seq``."""
        words = np.zeros(layout.RECORD_WORDS, np.int64)
        words[layout.RECORD_TABLE] = self._table
        words[layout.RECORD_LEVELS] = len(self.levels)
        words[layout.RECORD_OUT] = self.counts_address
        words.view(np.uint64)[layout.RECORD_MAX_SEQ] = max_seq
        return words

    def find_values(
        self, keys: list[bytes], max_seq: int, missing: I64 | None = None
    ) -> tuple[list[bytes | int | None], bool]:
        """Look up many keys in one call of the kernel.

        Args:
            keys: what to look up.
            max_seq: rows at or below it.
            missing: gets the place where each undecided key stopped (``layout.point_lookup``).

        Returns:
            Per key its value, ``None`` if it has none, or the status that keeps it undecided: ``NEED_META``,
            ``NEED_BLOCK``, ``CORRUPT``, or ``FOUND`` for a merge operand; and whether no key is undecided.
        """
        answers: list[bytes | int | None] = [None] * len(keys)
        undecided = compiled.lookup_many(
            keys,
            answers,
            len(keys),
            max_seq,
            self._table,
            len(self.levels),
            _LANES_ADDRESS,
            self.counts_address,
            0 if missing is None else address_of(missing),
        )
        return answers, undecided == 0

    def _build_table(self) -> None:
        self._level_table = np.zeros((max(1, len(self.levels)), layout.LEVEL_WORDS), np.int64)
        for row, level in zip(self._level_table, self.levels, strict=False):
            row[layout.LEVEL_VIEWS] = address_of(level.records)
            row[layout.LEVEL_COUNT] = len(level.ssts)
        self._table = address_of(self._level_table)
        out = self._counts
        self._out = out[: layout.OUT_EXPIRE_TS + 1].data
        self._missing = self._out[: layout.OUT_BLOCK + 1]
        self.counts_address = address_of(out)
        """Where kernels count what they use, for all trees of one reader."""
        self.level_words = np.array([self._table, len(self.levels)], np.int64).tobytes()
        """Where the kernel of scans finds the levels, and how many there are."""


class TreeRouter:
    """The trees of one manifest by segment prefix, and the sequence bound of their SSTs."""

    __slots__ = ("_last_l0_seq", "_prefixes", "_value_words", "lookups", "value_kernel", "value_record")

    def __init__(self, manifest: Manifest, reader: SstReader, previous: "TreeRouter | None" = None) -> None:
        """Make no request; trees that ``previous`` has as well are taken over from there."""
        known = {} if previous is None else dict(zip(previous._prefixes, previous.lookups, strict=True))
        self._last_l0_seq = manifest.last_l0_seq
        self._prefixes: list[bytes] = []
        self.lookups: list[TreeLookup] = []
        for prefix, tree in manifest.trees():
            if prefix or not manifest.segments or not tree.is_empty:
                old = known.get(prefix)
                self._prefixes.append(prefix)
                self.lookups.append(old if old is not None and old.tree == tree else TreeLookup(tree, reader, old))
        self.value_kernel: Callable[[bytes, int], bytes | int | None] | None = None
        """The kernel that finds values of the newest state, if there is one tree."""
        self.value_record = 0
        """The address of its arguments, which ``_value_words`` keeps alive."""
        if use_kernels() and len(self.lookups) == 1:
            self._value_words = self.lookups[0].value_record(self._last_l0_seq)
            self.value_record = address_of(self._value_words)
            self.value_kernel = compiled.lookup_value

    def bound(self, max_seq: int | None) -> int:
        """Return the newest visible seq in SSTs: rows above ``last_l0_seq`` do not count (format.md 4.2)."""
        return self._last_l0_seq if max_seq is None else min(max_seq, self._last_l0_seq)

    def route(self, key: bytes) -> list[TreeLookup]:
        """Return the trees that can hold a key: the segment with its prefix, and the root tree if it is in use."""
        if len(self.lookups) == 1 and not self._prefixes[0]:
            return self.lookups
        at = bisect_right(self._prefixes, key) - 1
        trees = [self.lookups[at]] if at >= 0 and key.startswith(self._prefixes[at]) else []
        if at > 0 and not self._prefixes[0]:
            trees.append(self.lookups[0])
        return trees

    def candidates(self, key: bytes) -> list[VisibleSst]:
        """Return the SSTs of all trees that show a key, newest first."""
        return [sst for tree in self.route(key) for sst in tree.candidates(key)]

    def lookups_between(self, start: bytes | None, end: bytes | None) -> list[TreeLookup]:
        """Return the trees that can hold keys from ``start`` on, below ``end``; ``None`` is no bound."""
        if len(self.lookups) == 1:
            return self.lookups
        first = 0 if start is None else max(0, bisect_right(self._prefixes, start) - 1)
        last = len(self._prefixes) if end is None else bisect_left(self._prefixes, end)
        found = self.lookups[first:last]
        return found if first == 0 or self._prefixes[0] else [self.lookups[0], *found]

    def in_range(self, key_range: KeyRange) -> Iterator[tuple[bytes, KeyRange, Tree]]:
        """Yield prefix, part of the range and tree for each tree that holds keys of the range, by prefix."""
        for prefix, lookup in zip(self._prefixes, self.lookups, strict=True):
            part = key_range.intersect(KeyRange.with_prefix(prefix))
            if not part.is_empty and not lookup.tree.is_empty:
                yield prefix, part, lookup.tree


def block_span(meta: SstMeta, key: bytes) -> tuple[int, int] | None:
    """Return the blocks ``[first, last)`` that can hold the key; ``None`` if the filters exclude it."""
    return meta.index.block_range_for_key(key) if meta.filters.may_contain_key(key) else None


def append_versions(found: list[Entry], key: bytes, max_seq: int, *, image: bytes, slot: SstSlot, offset: int) -> bool:
    """Append the versions of a key in one block, newest first, and return whether the search ends here.

    A value or a tombstone ends it, since it hides everything below; a merge operand does not.

    Args:
        found: grows.
        key, max_seq: versions of this key at or below this sequence number.
        image: the decoded block.
        slot, offset: the SST, and the byte of the file at which the block begins; for the error.

    Raises:
        CorruptionError: the block is malformed.
    """
    try:
        entries = decode_block_plain(image, slot.sst.format_version)
    except CorruptionError as error:
        error.offset = offset + (error.offset or 0)
        raise error.at(slot.path) from None
    for entry in entries:
        if entry.key == key and entry.seq <= max_seq:
            found.append(entry)
            if not entry.is_merge:
                return True
    return False
