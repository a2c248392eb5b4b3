"""Kernels that read and write rows in columns, in guarded memory, against their plain twins.

An input is a few bytes of options, and rows: flags, the length of the prefix shared with the key before, lengths of the
rest of the key and of the value, the sequence number, and those times that the flags name.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from shale.engine.memtable import row_order
from shale.errors import CorruptionError
from shale.format.blocks import writer as block_writer
from shale.format.blocks.output import NO_LIMIT, BlockOptions
from shale.format.blocks.plain import decode_block_plain
from shale.format.blocks.section import CRC_SIZE
from shale.format.blocks.writer import BlockWriter
from shale.iter import merge_filter_kernel
from shale.iter.merge_filter_kernel import MergeFilterKernel, OutputCapacity, Step
from shale.iter.merge_filter_plain import merge_filter_plain
from shale.kernels import sort, strings
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import EMPTY_ROWS, Rows, entries_from_rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry
from tests.fuzz import samples
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import require_equal, without_kernels
from tests.fuzz.target import Target
from tests.guarded import GuardedBytes, Side, guarded_numpy
from tests.unit.kernels.strategies import in_order

_ROWS_MAX = 200
_OPTIONS = 6
_FAR_SEQ = 0xF0
_FLAGS = FLAG_TOMBSTONE | FLAG_MERGE | FLAG_CREATE_TS | FLAG_EXPIRE_TS


@dataclass
class _Cursor:
    data: bytes
    at: int = 0

    def byte(self) -> int:
        return (self.bytes(1) or b"\0")[0]

    def bytes(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def number(self) -> int:
        return int.from_bytes(self.bytes(8), "little", signed=True)


def _entries(data: bytes) -> Iterator[Entry]:
    cursor, key = _Cursor(data), b""
    for _ in range(_ROWS_MAX):
        if cursor.at >= len(data):
            return
        flags = cursor.byte() & _FLAGS
        if flags & FLAG_TOMBSTONE:
            flags &= ~FLAG_MERGE
        key = key[: cursor.byte()] + cursor.bytes(cursor.byte()) or b"\0"
        size = cursor.byte()
        value = b"" if flags & FLAG_TOMBSTONE else bytes([cursor.byte()]) * (size if size < _FAR_SEQ else size * 20)
        seq = cursor.byte()
        seq = seq if seq < _FAR_SEQ else cursor.number() % (1 << 64)
        create = cursor.number() if flags & FLAG_CREATE_TS else 0
        yield Entry(key, value, seq, flags, create, cursor.number() if flags & FLAG_EXPIRE_TS else 0)


def _encoded(rows: Sequence[Entry]) -> bytes:
    found = bytearray()
    for row in rows:
        key, value = row.key[:255], row.value[: _FAR_SEQ - 1]
        found += bytes([row.flags, 0, len(key)]) + key + bytes([len(value)])
        found += b"" if row.flags & FLAG_TOMBSTONE else value[:1] or b"\0"
        found += bytes([row.seq]) if row.seq < _FAR_SEQ else bytes([_FAR_SEQ]) + row.seq.to_bytes(8, "little")
        for flag, time in ((FLAG_CREATE_TS, row.create_ts), (FLAG_EXPIRE_TS, row.expire_ts)):
            found += time.to_bytes(8, "little", signed=True) if row.flags & flag else b""
    return bytes(found)


def _seeds() -> list[bytes]:
    found = []
    for number, count in enumerate((1, 3, 20, 60, 60, 60)):
        options = bytes([number & 1, 40 * number, 3 * number, 0xFF >> number, number, 10])
        found.append(options + _encoded(samples.rows(count, seed=number)))
    return found


def _mutate(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        at = rng.randrange(_OPTIONS)
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data[:_OPTIONS] + mutate_bytes(rng, data[_OPTIONS:])


def _guarded(rows: Rows) -> Rows:
    """Return the rows with each column in memory of its own."""
    names = ("key_bytes", "key_offsets", "val_bytes", "val_offsets", "seq", "flags", "create_ts", "expire_ts")
    return Rows(**{name: np.array(getattr(rows, name)) for name in names})


@contextmanager
def _memory(options: bytes) -> Iterator[Callable[[Sequence[Entry]], Rows]]:
    """Guard all arrays; return a function that puts rows there.  The first option says the side, and a shift."""
    shift = options[0] >> 1 & 3

    def columns(entries: Sequence[Entry]) -> Rows:
        if not entries:
            return EMPTY_ROWS
        first = min(shift, len(entries) - 1)
        rows = rows_from_entries([*entries[:first], *entries])
        return _guarded(rows).slice(first, len(rows))

    with guarded_numpy(Side(options[0] & 1)):
        yield columns


def _split(data: bytes) -> tuple[bytes, list[Entry]]:
    return data[:_OPTIONS].ljust(_OPTIONS, b"\0"), list(_entries(data[_OPTIONS:]))


def _rules(options: bytes) -> MergeRules:
    bits = options[1]
    return MergeRules(
        newest_only=bool(bits & 1),
        drop_tombstones=bool(bits & 2),
        max_seq=options[2] if bits & 4 else None,
        min_seq=options[3] if bits & 8 else None,
        now_tick=(options[4] - 128) << 33 if bits & 16 else None,
    )


def _merge(data: bytes) -> None:
    """Merge sources that come in chunks into outputs that may be too small for one row."""
    options, rows = _split(data)
    count, chunk, room = 1 + (options[4] & 3), 1 + (options[4] >> 2), 1 + options[5]
    sources = [in_order(rows[number::count]) for number in range(count)]
    expired = [0, 0]

    def on_expired(values: int, operands: int) -> None:
        expired[0] += values
        expired[1] += operands

    expected = list(merge_filter_plain(sources, _rules(options), on_expired))
    limits = merge_filter_kernel.CAPACITY_FIRST, merge_filter_kernel.CAPACITY_MAX
    merge_filter_kernel.CAPACITY_FIRST = merge_filter_kernel.CAPACITY_MAX = OutputCapacity(room, 16 * room, 40 * room)
    try:
        with _memory(options) as columns:
            chunks = [[columns(source[at : at + chunk]) for at in range(0, len(source), chunk)] for source in sources]
            found, counted = _merged(chunks, _rules(options), eager_rows=1 + options[1] // 8)
    finally:
        merge_filter_kernel.CAPACITY_FIRST, merge_filter_kernel.CAPACITY_MAX = limits
    require_equal("the kernel that merges columns and its twin", found, expected)
    require_equal("expired rows that both count", counted, expired)


def _merged(chunks: list[list[Rows]], rules: MergeRules, *, eager_rows: int) -> tuple[list[Entry], list[int]]:
    kernel = MergeFilterKernel(len(chunks), rules)
    for number, source in enumerate(chunks):
        if source:
            kernel.begin(number, source.pop(0))
    found: list[Entry] = []
    expired = [0, 0]
    while True:
        step = kernel.run()
        expired = [before + more for before, more in zip(expired, kernel.take_expired(), strict=True)]
        if step is not Step.NEED_INPUT or kernel.final_rows >= eager_rows:
            found += entries_from_rows(kernel.take())
        if step is Step.DONE:
            return found, expired
        if step is Step.NEED_INPUT:
            source = chunks[kernel.source_needing_input]
            kernel.feed(source.pop(0) if source else None)


def _sort(data: bytes) -> None:
    """Order rows, take them from several parts, and keep the newest of each key."""
    options, entries = _split(data)
    count = 1 + (options[1] & 3)
    entries = list({(row.key, row.seq): row for row in entries}.values())
    with _memory(options) as columns:
        rows = columns(entries)
        order = sort.row_order(rows)
        require_equal("two orders of rows", order.tolist(), row_order.plain_order(rows).tolist())
        places = order[:: 1 + (options[2] & 3)]
        taken = sort.take_rows(rows, places)
        plain = row_order.plain_take_rows(rows, places)
        require_equal("rows that were taken", entries_from_rows(taken), entries_from_rows(plain))
        size = 1 + len(entries) // count
        merged = row_order.merged_parts([columns(entries[at : at + size]) for at in range(0, len(entries), size)])
        newest = row_order.newest_of_each(rows)
        keys = [row.key for row in entries]
        is_ascending = all(first < second for first, second in pairwise(keys))
        require_equal("ascending keys", sort.is_ascending(rows), is_ascending)
        with without_kernels(row_order):
            plain_newest = row_order.newest_of_each(rows)
    require_equal("merged parts and sorted rows", entries_from_rows(merged), in_order(entries))
    require_equal("the newest rows", entries_from_rows(newest), entries_from_rows(plain_newest))


def _encode(data: bytes) -> None:
    """Encode rows to blocks, several calls with limits, and decode them again."""
    options, entries = _split(data)
    by_seq = bool(options[1] & 1)
    if not by_seq and options[1] & 6:
        entries = in_order(entries)
    block = BlockOptions(target_bytes=1 + options[2] * (1 + (options[3] & 15)), by_seq=by_seq)
    until = NO_LIMIT if options[4] < 128 else options[4] - 127
    with _memory(options) as columns:
        found = _written(block, entries, columns, step=1 + options[5], until_bytes=until)
        with without_kernels(block_writer):
            plain = _written(block, entries, columns, step=1 + options[5], until_bytes=until)
    require_equal("blocks of the kernel and of its twin", found, plain)
    if found is not None:
        bounds, image = found[0], found[1]
        blocks = [image[start : end - CRC_SIZE] for start, end in pairwise(bounds)]
        decoded = [row for each in blocks for row in decode_block_plain(each, 2)]
        require_equal("decoded and encoded rows", decoded, entries)


def _written(
    options: BlockOptions,
    entries: list[Entry],
    columns: Callable[[Sequence[Entry]], Rows],
    *,
    step: int,
    until_bytes: int,
) -> Any:
    """Return what a writer has written, or ``None`` if it refused the rows."""
    writer = BlockWriter(options)
    taken, parts = [], []
    at = limit = 0
    try:
        while at < len(entries):
            limit = min(limit + until_bytes, NO_LIMIT)
            rows = columns(entries[at : at + step])
            done = writer.add(rows, limit)
            taken.append(done)
            at += done
            parts += [bytes(part) for part in writer.take_parts()]
        writer.finish()
    except CorruptionError:
        return None
    parts += [bytes(part) for part in writer.take_parts()]
    written, index = writer.written, writer.written.index()
    keys = [index.key_bytes[start:end].tobytes() for start, end in pairwise(index.key_offsets.tolist())]
    return index.offsets.tolist(), b"".join(parts), keys, written.block_counts().tolist(), taken


def _strings(data: bytes) -> None:
    """Copy strings of a list, some of which are not ``bytes``, to one buffer."""
    options, body = data[:_OPTIONS].ljust(_OPTIONS, b"\0"), data[_OPTIONS:]
    with guarded_numpy(Side(options[0] & 1)), GuardedBytes(Side(options[0] & 1)) as guarded:
        items: list[Any] = [guarded.copy(each) for each in body.split(b"\0")]
        for place in range(options[1] & 3):
            items[(options[2] + place) % len(items)] = bytearray(body[: options[3]])
        start = options[4] % (len(items) + 1)
        end = start + options[5] % (len(items) - start + 1)
        found = strings.strings_column(items, start, end)
        with without_kernels(strings):
            plain = strings.strings_column(items, start, end)
        for what, one, other in zip(("bytes", "offsets"), found, plain, strict=True):
            require_equal(f"a column of strings and its twin, {what}", one.tolist(), other.tolist())
        del items


def _lists() -> list[bytes]:
    return [bytes([0, 0, 0, 0, 0, 9]) + b"a\0bb\0\0ccc", bytes([1, 2, 1, 3, 1, 255]) + b"\0".join([b"k" * 40] * 30)]


def targets() -> list[Target]:
    merges = ("shale.iter.merge_filter_kernel", "shale.iter.merge_filter_plain", "shale.kernels.columns")
    sorts = ("shale.kernels.sort", "shale.engine.memtable.row_order")
    blocks = ("shale.format.blocks.kernel_writer", "shale.format.blocks.plain_writer")
    return [
        Target("kernel merge columns", _merge, _seeds, (), merges, _mutate, weight=2),
        Target("kernel sort", _sort, _seeds, (), sorts, _mutate),
        Target("kernel encode blocks", _encode, _seeds, (), blocks, _mutate, weight=2),
        Target("kernel strings", _strings, _lists, (), ("shale.kernels.strings",), _mutate),
    ]
