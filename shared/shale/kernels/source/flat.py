"""Kernels: the FlatBuffers that have a table per block, index and stats (docs/reference/format.md 3, 10 and 11).

Reading trusts nothing and explains nothing: where it returns ``REFUSED``, the plain reader, in
``shale.format.flat.columns``, reads again and reports the error.  A kernel may refuse what the plain reader accepts,
such as buffers with parts that are referenced twice, but accepts nothing that it refuses.  The plain writers are in
``shale.format.sst.index`` and ``shale.format.sst.stats``.
"""

from shale.kernels.layout.flat import ENTRY_SIZE, REFUSED, VTABLE_SIZE
from shale.kernels.source.compare import compare_bytes
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import copy, load_i64, load_u16, load_u32, store_i64, store_u16, store_u32


@inlined
def _follow(data: int, limit: int, at: int) -> int:
    distance = load_u32(data + at)
    target = at + distance
    return target if distance >= 4 and target <= limit - 4 else REFUSED


@inlined
def _vtable(data: int, limit: int, table: int) -> int:
    """Return the position of a table's vtable, if both are inside the buffer."""
    back = load_u32(data + table)
    vtable = table - (back - ((back & 1 << 31) << 1))
    if vtable < 0 or vtable > limit - 4:
        return REFUSED
    vtable_size = load_u16(data + vtable)
    size = load_u16(data + vtable + 2)
    if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > limit or size < 4 or table + size > limit:
        return REFUSED
    return vtable


@inlined
def _field(data: int, vtable: int, slot: int, width: int) -> int:
    """Return the offset of a field in a table with this vtable; 0 if it is absent."""
    entry = 4 + 2 * slot
    if load_u16(data + vtable) < entry + 2:
        return 0
    field = load_u16(data + vtable + entry)
    if field != 0 and (field < 4 or field + width > load_u16(data + vtable + 2)):
        return REFUSED
    return field


@helper
def _read_entry(data: int, limit: int, at: int, offset: int, key_start: int) -> int:
    """Read the entry of the index that is referenced at ``at``; returns the bytes of its table."""
    table = _follow(data, limit, at)
    if table < 0:
        return REFUSED
    vtable = _vtable(data, limit, table)
    if vtable < 0:
        return REFUSED
    field = _field(data, vtable, 0, 8)
    key_field = _field(data, vtable, 1, 4)
    if field < 0 or key_field <= 0:
        return REFUSED
    key = _follow(data, limit, table + key_field)
    if key < 0 or load_u32(data + key) > limit - 4 - key:
        return REFUSED
    store_i64(offset, load_i64(data + table + field) if field else 0)
    store_i64(key_start, key + 4)
    return load_u16(data + vtable + 2)


@kernel("i64(i64, i64, i64, i64, i64, i64, i64, i64)")
def read_index(
    data: int, limit: int, start: int, count: int, data_len: int, offsets: int, key_starts: int, key_offsets: int
) -> int:
    """Read and check the entries of an index.

    Args:
        data, limit: the buffer, and its size.
        start, count: position of the references to the entries, which lie inside.
        data_len: where the last block ends.
        offsets, key_starts, key_offsets: where int64 go: ``count + 1``, ``count`` and ``count + 1``.

    Returns:
        the bytes of all keys, or ``REFUSED``.
    """
    keys, tables = 0, 0
    before = -1
    store_i64(key_offsets, 0)
    for number in range(count):
        offset = offsets + 8 * number
        size = _read_entry(data, limit, start + 4 * number, offset, key_starts + 8 * number)
        if size < 0 or load_i64(offset) <= before:
            return REFUSED
        before = load_i64(offset)
        tables += size
        keys += load_u32(data + load_i64(key_starts + 8 * number) - 4)
        store_i64(key_offsets + 8 * number + 8, keys)
    store_i64(offsets + 8 * count, data_len)
    if load_i64(offsets) != 0 or before >= data_len or tables + keys > limit:
        return REFUSED
    return keys


@kernel("void(i64, i64, i64, i64, i64)")
def gather(data: int, starts: int, offsets: int, count: int, gathered: int) -> None:
    """Copy ``count`` ranges back to back; ``offsets`` holds the target of each one, and the end of the last."""
    for number in range(count):
        at = load_i64(offsets + 8 * number)
        size = load_i64(offsets + 8 * number + 8) - at
        copy(gathered + at, data + load_i64(starts + 8 * number), size)


@kernel("i64(i64, i64, i64)")
def first_descending_key(keys: int, offsets: int, count: int) -> int:
    """Find the first key that is below the one before; ``count`` if there is none.

    Args:
        keys, offsets: the keys back to back, and ``count + 1`` int64.
        count: how many.
    """
    for number in range(1, count):
        before, start = load_i64(offsets + 8 * number - 8), load_i64(offsets + 8 * number)
        size = load_i64(offsets + 8 * number + 8) - start
        if compare_bytes(keys + before, start - before, keys + start, size) > 0:
            return number
    return count


@kernel("i64(i64, i64, i64, i64, i64, i64)")
def read_shorts(data: int, limit: int, start: int, count: int, slots: int, values: int) -> int:
    """Read the first ``slots`` fields, of 16 bits each, of ``count`` tables; 0 where one is absent.

    Args:
        data, limit, start, count: as in ``read_index``.
        slots: fields per table.
        values: where ``count * slots`` uint16 go.

    Returns:
        the bytes of all tables, or ``REFUSED``.
    """
    tables = 0
    for number in range(count):
        table = _follow(data, limit, start + 4 * number)
        if table < 0:
            return REFUSED
        vtable = _vtable(data, limit, table)
        if vtable < 0:
            return REFUSED
        tables += load_u16(data + vtable + 2)
        for slot in range(slots):
            field = _field(data, vtable, slot, 2)
            if field < 0:
                return REFUSED
            store_u16(values + 2 * (number * slots + slot), load_u16(data + table + field) if field else 0)
    return tables if tables <= limit else REFUSED


@kernel("i64(i64, i64, i64, i64, i64, i64, i64)")
def write_index(offsets: int, keys: int, key_offsets: int, count: int, size: int, end: int, places: int) -> int:
    """Write the entries of an index, from high to low addresses as FlatBuffers grow.

    Args:
        offsets: int64, ``count`` of them: where blocks begin; none of them is 0, which would not be written.
        keys, key_offsets: their separators, and ``count + 1`` int64.
        count: how many.
        size: bytes of the buffer so far, a multiple of 4.
        end: where the bytes written end; ``ENTRY_SIZE_MAX`` per entry, ``VTABLES_SIZE`` and the keys fit before it.
        places: where ``count`` int64 go: the tables, counted from the buffer's end.

    Returns:
        how many bytes were written.
    """
    place = size
    high = end + size  # the address of position p is high - p
    short_vtable, long_vtable = 0, 0
    for number in range(count):
        key = load_i64(key_offsets + 8 * number)
        length = load_i64(key_offsets + 8 * number + 8) - key
        padded = length + 3 & ~3
        place += padded + 4
        key_place = place
        store_u32(high - key_place + padded, 0)  # the last word of the padded key, or the length of an empty one
        store_u32(high - key_place, length)
        copy(high - key_place + 4, keys + key, length)
        pad = -place & 7
        place += pad + ENTRY_SIZE
        table = high - place
        vtable = long_vtable if pad else short_vtable
        if vtable == 0:
            vtable = place + VTABLE_SIZE
            store_u16(high - vtable, VTABLE_SIZE)
            store_u16(high - vtable + 2, ENTRY_SIZE + pad)
            store_u16(high - vtable + 4, 8)
            store_u16(high - vtable + 6, 4)
            if pad:
                long_vtable = vtable
            else:
                short_vtable = vtable
        store_u32(table, vtable - place)
        store_u32(table + 4, place - 4 - key_place)
        store_i64(table + 8, load_i64(offsets + 8 * number))
        if pad:
            store_u32(table + ENTRY_SIZE, 0)
        store_i64(places + 8 * number, place)
        if vtable == place + VTABLE_SIZE:
            place = vtable
    return place - size


@inlined
def _write_stats_vtable(vtable: int, mask: int, size: int) -> None:
    """Write the vtable of a table of ``size`` bytes that has the fields of ``mask``, in slot order at its end."""
    slots = 3 if mask & 4 else 2 if mask & 2 else mask & 1
    field = size - 2 * ((mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1))
    store_u16(vtable, 4 + 2 * slots)
    store_u16(vtable + 2, size)
    for slot in range(slots):
        present = mask >> slot & 1
        store_u16(vtable + 4 + 2 * slot, field if present else 0)
        field += 2 * present


@kernel("i64(i64, i64, i64, i64, i64)")
def write_stats(values: int, count: int, end: int, vtables: int, places: int) -> int:
    """Write the tables of the blocks, first thing in a buffer; from high to low addresses, as FlatBuffers grow.

    Args:
        values: ``(count, 3)`` uint16; what is 0 is not written.
        count: how many blocks.
        end: where the bytes written end; ``STATS_SIZE_MAX`` per block and ``STATS_VTABLES_SIZE`` fit before it.
        vtables: ``STATS_VTABLES`` int64 of 0, for the places of vtables.
        places: where ``count`` int64 go: the tables, counted from the buffer's end.

    Returns:
        how many bytes were written.
    """
    place = 0
    for number in range(count):
        puts = load_u16(values + 6 * number)
        deletes = load_u16(values + 6 * number + 2)
        merges = load_u16(values + 6 * number + 4)
        mask = (puts != 0) | (deletes != 0) << 1 | (merges != 0) << 2
        fields_size = 2 * ((mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1))
        phase = place & 3  # an odd number of slots leaves a vtable of 2 mod 4 bytes
        size = (phase + fields_size + 3 & ~3) + 4 - phase
        place += size
        table = end - place
        if size - fields_size > 4:
            store_u16(table + 4, 0)
        at = table + size - fields_size
        if puts:
            store_u16(at, puts)
            at += 2
        if deletes:
            store_u16(at, deletes)
            at += 2
        if merges:
            store_u16(at, merges)
        store_i64(places + 8 * number, place)
        known = vtables + 8 * (mask | phase << 2)
        vtable = load_i64(known)
        if vtable:
            store_u32(table, vtable - place)
            continue
        slots = 3 if merges else 2 if deletes else 1 if puts else 0
        store_u32(table, 4 + 2 * slots)
        place += 4 + 2 * slots
        _write_stats_vtable(end - place, mask, size)
        store_i64(known, place)
    return place
