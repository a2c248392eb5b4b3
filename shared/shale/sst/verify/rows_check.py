"""Checks the rows of an SST against its metadata, block by block in order, in bounded memory.

An unreadable block is one finding.  The check of the order continues after it; totals of all rows are not compared.
"""

from dataclasses import field
from typing import TypedDict

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.blocks.checksums import damaged_blocks
from shale.format.blocks.decoder import decode_blocks, open_blocks
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.rows import I64, Rows, concat_rows
from shale.sst.builder import hash_rows
from shale.sst.meta import SstMeta
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.sst.verify.order import first_unordered_row
from shale.sst.verify.probe import first_missing
from shale.sst.verify.restarts import walk_blocks
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, U64_MAX, Compression, Sst

_FINDINGS_MAX = 100
"""Limit of findings per SST, which bounds the list."""
_KEY_SHOWN_MAX = 40


@dataclass(slots=True)
class RowTotals:
    """Totals of all readable blocks.  ``first_key`` and ``last_key`` are ``None`` without rows."""

    puts: int = 0
    deletes: int = 0
    merges: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    min_seq: int = U64_MAX
    max_seq: int = 0
    first_key: bytes | None = None
    last_key: bytes | None = None

    @property
    def rows(self) -> int:
        """Rows of every kind."""
        return self.puts + self.deletes + self.merges


class _BlockEncoding(TypedDict):
    version: int
    compression: Compression
    path: str
    transformer: BlockTransformer | None
    image_max: int | None


@dataclass(slots=True)
class RowsCheck:
    """Checks blocks in order; ``findings`` grows."""

    sst: Sst
    path: str
    meta: SstMeta
    findings: list[Finding] = field(default_factory=list)
    totals: RowTotals = field(default_factory=RowTotals)
    is_whole: bool = True
    transformer: BlockTransformer | None = None
    _last: Rows | None = None

    @property
    def is_full(self) -> bool:
        """Whether the limit of findings is reached."""
        return len(self.findings) >= _FINDINGS_MAX

    def check_checksums(self, data: memoryview, first: int, last: int) -> None:
        """Check only the checksums of the blocks ``[first, last)``, whose stored bytes are ``data``."""
        offsets = self.meta.index.offsets[first : last + 1]
        try:
            damaged = damaged_blocks(data, offsets, self.path)
        except CorruptionError as error:
            self.findings.append(Finding.of(error, self.path))
            return
        left = _FINDINGS_MAX - len(self.findings)
        self.findings += [
            Finding(self.path, "checksum mismatch", int(offsets[number]), Code.CHECKSUM) for number in damaged[:left]
        ]

    def check(self, data: memoryview, first: int, last: int) -> None:
        """Check the blocks ``[first, last)``, whose stored bytes are ``data``, unless the list is full."""
        if self.is_full:
            return
        offsets = self.meta.index.offsets[first : last + 1]
        how = _BlockEncoding(
            version=self.sst.format_version,
            compression=self.sst.info.compression,
            path=self.path,
            transformer=self.transformer,
            image_max=self.meta.block_image_max,
        )
        try:
            rows = decode_blocks(data, offsets, **how)
            stored = open_blocks(data, offsets, **how)
        except CorruptionError as error:
            self._check_apart(error, data, first, last)
            return
        walk = walk_blocks(stored)
        for block, what in walk.problems:
            self._note(first + block, what, Code.ROW_OFFSETS)
        bounds = np.zeros(len(walk.rows) + 1, np.int64)
        np.cumsum(walk.rows, out=bounds[1:])
        assert bounds[-1] == len(rows), "the walk and the decoder see the same rows"
        self._check_order(rows, bounds, first)
        self._check_separators(rows, bounds, first)
        self._check_filters(rows, bounds, first)
        self._count(rows, bounds, first)
        self._last = rows.slice(len(rows) - 1, len(rows))

    def check_totals(self) -> None:
        """Compare the totals of all rows with metadata and manifest."""
        if not self.is_whole or self.is_full:
            return
        info, totals, stats = self.sst.info, self.totals, self.meta.stats
        for name, known, seen in (
            ("first", info.first_entry, totals.first_key),
            ("last", info.last_entry, totals.last_key),
        ):
            if known is not None and known != seen:
                what = f"its {name} key is {shown(seen)}, the manifest says {shown(known)}"
                self.findings.append(Finding(self.path, what, None, Code.KEY_RANGE))
        if stats is None:
            return
        for name, stored, counted in (
            ("puts", stats.num_puts, totals.puts),
            ("deletes", stats.num_deletes, totals.deletes),
            ("merges", stats.num_merges, totals.merges),
            ("bytes of keys", stats.raw_key_size, totals.key_bytes),
            ("bytes of values", stats.raw_val_size, totals.value_bytes),
        ):
            if stored != counted:
                what = f"its stats count {stored} {name}, there are {counted}"
                self.findings.append(Finding(self.path, what, info.stats_offset, Code.STATS))

    def _check_apart(self, error: CorruptionError, data: memoryview, first: int, last: int) -> None:
        """Find the malformed blocks by bisection; check the others as usual."""
        if last - first == 1:
            self.findings.append(Finding.of(error, self.path))
            self.is_whole = False
            self._last = None
            return
        middle = (first + last) // 2
        cut = int(self.meta.index.offsets[middle] - self.meta.index.offsets[first])
        self.check(data[:cut], first, middle)
        self.check(data[cut:], middle, last)

    def _check_order(self, rows: Rows, bounds: I64, first: int) -> None:
        before = 0
        if self._last is not None:
            before = 1
            rows = concat_rows([self._last, rows])
        place = first_unordered_row(rows)
        if place is not None:
            key, previous = shown(rows.key(place)), shown(rows.key(place - 1))
            block = first + _block_of(bounds, place - before)
            what = f"the row {key} seq {rows.seq[place]} follows {previous} seq {rows.seq[place - 1]}"
            self._note(block, what, Code.ROW_ORDER)

    def _check_separators(self, rows: Rows, bounds: I64, first: int) -> None:
        """Check that a separator is at most its block's keys and above earlier keys, except a key in both blocks."""
        previous = self._last.key(0) if self._last is not None else None
        for number, (start, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            separator, key = self.meta.index.first_key(first + number), rows.key(start)
            if separator > key:
                what = f"the index has {shown(separator)} for a block that begins with {shown(key)}"
                self._note(first + number, what, Code.SEPARATOR)
            elif previous is not None and separator <= previous and not separator == previous == key:
                what = f"the index has {shown(separator)} for a block after {shown(previous)}"
                self._note(first + number, what, Code.SEPARATOR)
            previous = rows.key(end - 1)

    def _check_filters(self, rows: Rows, bounds: I64, first: int) -> None:
        named = [each for each in self.meta.filters.filters if each.whole_key]
        if not named:
            return
        hashes = hash_rows(rows)
        for each in named:
            place = first_missing(each.bloom, hashes)
            if place is not None:
                what = f"the filter {each.name} denies the key {shown(rows.key(place))}"
                self._note(first + _block_of(bounds, place), what, Code.FILTER_DENIES)

    def _count(self, rows: Rows, bounds: I64, first: int) -> None:
        deletes = rows.flags & FLAG_TOMBSTONE != 0
        merges = rows.flags & FLAG_MERGE != 0
        kinds = np.stack([~(deletes | merges), deletes, merges], axis=1).astype(np.int64)
        totals = self.totals
        puts, deleted, merged = kinds.sum(axis=0).tolist()
        totals.puts += puts
        totals.deletes += deleted
        totals.merges += merged
        totals.key_bytes += int(rows.key_offsets[-1] - rows.key_offsets[0])
        totals.value_bytes += int(rows.val_offsets[-1] - rows.val_offsets[0])
        totals.min_seq = min(totals.min_seq, int(rows.seq.min()))
        totals.max_seq = max(totals.max_seq, int(rows.seq.max()))
        if totals.first_key is None:
            totals.first_key = rows.key(0)
        totals.last_key = rows.key(len(rows) - 1)
        stats = self.meta.stats
        if stats is None or not len(stats.blocks):
            return
        stored = stats.blocks[first : first + len(bounds) - 1].astype(np.int64)
        counted = np.add.reduceat(kinds, bounds[:-1], axis=0)
        if len(stored) != len(counted):
            what = f"the stats tell of {len(stats.blocks)} blocks, there are {len(self.meta.index)}"
            self._note(first, what, Code.STATS)
            return
        for block in np.flatnonzero((stored != counted & 0xFFFF).any(axis=1)).tolist():
            said, there = stored[block].tolist(), counted[block].tolist()
            what = f"the stats count {said} puts, deletes and merges, there are {there}"
            self._note(first + block, what, Code.STATS)

    def _note(self, block: int, what: str, code: Code) -> None:
        if not self.is_full:
            self.findings.append(Finding(self.path, what, int(self.meta.index.offsets[block]), code))


def shown(key: bytes | None) -> str:
    """Return a key for a message, cut if it is long."""
    if key is None:
        return "none"
    return repr(key) if len(key) <= _KEY_SHOWN_MAX else f"{key[:_KEY_SHOWN_MAX]!r}… ({len(key)} bytes)"


def _block_of(bounds: I64, row: int) -> int:
    return max(0, int(np.searchsorted(bounds, row, "right")) - 1)
