"""Kernel: the SSTs and trees of a manifest as FlatBuffers (docs/reference/format.md 3.2 and 4).

It does what the generated code does with ``flatbuffers.Builder``, which stays the reference: tables are written from
high to low addresses, fields that have their default are left out, and equal vtables are written once.
"""

from shale.kernels.layout import manifest as layout
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import (
    add_word,
    copy,
    load_u16,
    set_word,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    word,
)


@inlined
def _address(state: int) -> int:
    """Return the address of what was written last."""
    return word(state, layout.END) - word(state, layout.PLACE)


@inlined
def _align(state: int, size: int, more: int) -> None:
    """Pad so that ``more`` bytes later the place is a multiple of ``size``, a power of 2."""
    for _ in range(-(word(state, layout.PLACE) + more) & size - 1):
        add_word(state, layout.PLACE, 1)
        store_u8(_address(state), 0)


@inlined
def _start_table(state: int, slots: int) -> None:
    set_word(state, layout.OBJECT_END, word(state, layout.PLACE))
    for slot in range(slots):
        set_word(state, layout.SLOTS + slot, 0)


@inlined
def _add_u64(state: int, slot: int, value: int) -> None:
    if value != 0:
        _align(state, 8, 0)
        add_word(state, layout.PLACE, 8)
        store_i64(_address(state), value)
        set_word(state, layout.ALIGNMENT, 8)
        set_word(state, layout.SLOTS + slot, word(state, layout.PLACE))


@inlined
def _add_u32(state: int, slot: int, value: int) -> None:
    if value != 0:
        _align(state, 4, 0)
        add_word(state, layout.PLACE, 4)
        store_u32(_address(state), value)
        set_word(state, layout.SLOTS + slot, word(state, layout.PLACE))


@inlined
def _add_u8(state: int, slot: int, value: int) -> None:
    if value != 0:
        add_word(state, layout.PLACE, 1)
        store_u8(_address(state), value)
        set_word(state, layout.SLOTS + slot, word(state, layout.PLACE))


@inlined
def _add_offset(state: int, slot: int, target: int) -> None:
    if target != 0:
        _align(state, 4, 0)
        add_word(state, layout.PLACE, 4)
        store_u32(_address(state), word(state, layout.PLACE) - target)
        set_word(state, layout.SLOTS + slot, word(state, layout.PLACE))


@inlined
def _has_entries(state: int, vtable: int, table: int, slots: int) -> bool:
    """Return whether the vtable at this address is that of the open table."""
    if load_u16(vtable) != 4 + 2 * slots or load_u16(vtable + 2) != table - word(state, layout.OBJECT_END):
        return False
    for slot in range(slots):
        place = word(state, layout.SLOTS + slot)
        if load_u16(vtable + 4 + 2 * slot) != (table - place if place else 0):
            return False
    return True


@helper
def _end_table(state: int, slots: int) -> int:
    """Write the reference to the vtable, and the vtable if it is new; return the place of the table."""
    _align(state, 4, 0)
    add_word(state, layout.PLACE, 4)
    table = word(state, layout.PLACE)
    at = _address(state)
    while slots > 0 and word(state, layout.SLOTS + slots - 1) == 0:
        slots -= 1
    count = word(state, layout.VTABLE_COUNT)
    for number in range(min(count, layout.VTABLES_MAX)):
        known = word(state, layout.VTABLES + number)
        if _has_entries(state, word(state, layout.END) - known, table, slots):
            store_u32(at, known - table)
            return table
    add_word(state, layout.PLACE, 4 + 2 * slots)
    vtable = _address(state)
    store_u16(vtable, 4 + 2 * slots)
    store_u16(vtable + 2, table - word(state, layout.OBJECT_END))
    for slot in range(slots):
        place = word(state, layout.SLOTS + slot)
        store_u16(vtable + 4 + 2 * slot, table - place if place else 0)
    store_u32(at, word(state, layout.PLACE) - table)
    if count < layout.VTABLES_MAX:
        set_word(state, layout.VTABLES + count, word(state, layout.PLACE))
    set_word(state, layout.VTABLE_COUNT, count + 1)
    return table


@helper
def _write_bytes(state: int, data: int, size: int) -> int:
    """Write a vector of bytes; return its place, 0 for the size -1."""
    if size < 0:
        return 0
    _align(state, 4, size)
    add_word(state, layout.PLACE, size)
    copy(_address(state), data, size)
    add_word(state, layout.PLACE, 4)
    store_u32(_address(state), size)
    return word(state, layout.PLACE)


@helper
def _write_tables(state: int, tables: int, count: int) -> int:
    """Write a vector of tables; ``tables`` is the address of their places."""
    _align(state, 4, 4 * count)
    for number in range(count):
        add_word(state, layout.PLACE, 4)
        store_u32(_address(state), word(state, layout.PLACE) - word(tables, count - 1 - number))
    add_word(state, layout.PLACE, 4)
    store_u32(_address(state), count)
    return word(state, layout.PLACE)


@helper
def _write_ulid(state: int, high: int, low: int) -> int:
    _start_table(state, 2)
    _add_u64(state, 1, low)
    _add_u64(state, 0, high)
    return _end_table(state, 2)


@helper
def _write_info(state: int, view: int, keys: int) -> int:
    first_len, last_len = word(view, layout.FIRST_LEN), word(view, layout.LAST_LEN)
    first = keys + word(view, layout.KEYS)
    first_entry = _write_bytes(state, first, first_len)
    last_entry = _write_bytes(state, first + max(first_len, 0), last_len)
    _start_table(state, 11)
    _add_u64(state, 9, word(view, layout.STATS_LEN))
    _add_u64(state, 8, word(view, layout.STATS_OFFSET))
    _add_u64(state, 4, word(view, layout.FILTER_LEN))
    _add_u64(state, 3, word(view, layout.FILTER_OFFSET))
    _add_u64(state, 2, word(view, layout.INDEX_LEN))
    _add_u64(state, 1, word(view, layout.INDEX_OFFSET))
    _add_offset(state, 7, last_entry)
    _add_offset(state, 0, first_entry)
    _add_u8(state, 10, word(view, layout.FILTER_FORMAT))
    _add_u8(state, 6, word(view, layout.SST_TYPE))
    _add_u8(state, 5, word(view, layout.COMPRESSION))
    return _end_table(state, 11)


@helper
def _write_sst(state: int, view: int, keys: int) -> int:
    id_ = _write_ulid(state, word(view, layout.SST_HIGH), word(view, layout.SST_LOW))
    info = _write_info(state, view, keys)
    _start_table(state, 3)
    _add_offset(state, 1, info)
    _add_offset(state, 0, id_)
    _align(state, 2, 0)
    add_word(state, layout.PLACE, 2)
    store_u16(_address(state), word(view, layout.FORMAT_VERSION))
    set_word(state, layout.SLOTS + 2, word(state, layout.PLACE))
    return _end_table(state, 3)


@helper
def _write_views(state: int, views: int, count: int, tables: int) -> int:
    """Write views and the vector of them; ``tables``: where the places of ``count`` tables go."""
    for number in range(count):
        view = views + 8 * layout.VIEW_WORDS * number
        sst_id = _write_ulid(state, word(view, layout.SST_HIGH), word(view, layout.SST_LOW))
        id_ = _write_ulid(state, word(view, layout.VIEW_HIGH), word(view, layout.VIEW_LOW))
        _start_table(state, 3)
        _add_offset(state, 1, sst_id)
        _add_offset(state, 0, id_)
        set_word(tables, number, _end_table(state, 3))
    return _write_tables(state, tables, count)


@helper
def _write_tree(state: int, tree: int, views: int, out: int) -> int:
    """Write L0s, watermark and runs of a tree, whose places go to ``out``; return how many views it has."""
    tables = word(state, layout.SCRATCH)
    done = word(tree, layout.TREE_L0)
    set_word(out, layout.OUT_L0, _write_views(state, views, done, tables))
    watermark = 0
    if word(tree, layout.TREE_HAS_WATERMARK):
        watermark = _write_ulid(state, word(tree, layout.TREE_HIGH), word(tree, layout.TREE_LOW))
    set_word(out, layout.OUT_WATERMARK, watermark)
    runs = word(tree, layout.TREE_RUNS)
    for number in range(runs):
        run = tree + 8 * (layout.TREE_WORDS + layout.RUN_WORDS * number)
        count = word(run, layout.RUN_VIEWS)
        ssts = _write_views(state, views + 8 * layout.VIEW_WORDS * done, count, tables + 8 * runs)
        done += count
        _start_table(state, 2)
        _add_offset(state, 1, ssts)
        _add_u32(state, 0, word(run, layout.RUN_ID))
        set_word(tables, number, _end_table(state, 2))
    set_word(out, layout.OUT_RUNS, _write_tables(state, tables, runs))
    return done


@helper
def _write_segment(state: int, tree: int, views: int, prefix: int, out: int) -> int:
    """Write a tree with its prefix; its place goes to ``OUT_SEGMENTS``; return how many views it has."""
    name = _write_bytes(state, prefix, word(tree, layout.TREE_PREFIX_LEN))
    count = _write_tree(state, tree, views, out)
    _start_table(state, 4)
    _add_offset(state, 3, word(out, layout.OUT_RUNS))
    _add_offset(state, 2, word(out, layout.OUT_L0))
    _add_offset(state, 1, word(out, layout.OUT_WATERMARK))
    _add_offset(state, 0, name)
    set_word(out, layout.OUT_SEGMENTS, _end_table(state, 4))
    return count


@kernel("i64(i64, i64, i64, i64, i64, i64, i64, i64, i64)")
def write_manifest(
    views: int, keys: int, order: int, ssts: int, trees: int, count: int, prefixes: int, state: int, out: int
) -> int:
    """Write the SSTs, the root tree and the segments, first thing in a buffer.

    Args:
        views: records of all views, tree by tree; see the layout.
        keys: first and last keys of their SSTs.
        order, ssts: numbers of the views whose SSTs are written, and how many there are.
        trees, count: records of the trees, the root tree first.
        prefixes: of the segments, back to back.
        state: zeros but for ``END``, ``ALIGNMENT``, which is 4, and ``SCRATCH``, which has a word for each view, run
            and tree.
        out: where ``OUT_WORDS`` places go, and as many words for a segment's.

    Returns:
        how many bytes were written; 0 if there were too many kinds of tables.
    """
    tables = word(state, layout.SCRATCH)
    for number in range(ssts):
        view = views + 8 * layout.VIEW_WORDS * word(order, number)
        set_word(tables, number, _write_sst(state, view, keys))
    set_word(out, layout.OUT_SSTS, _write_tables(state, tables, ssts))
    views += 8 * layout.VIEW_WORDS * _write_tree(state, trees, views, out)
    trees += 8 * (layout.TREE_WORDS + layout.RUN_WORDS * word(trees, layout.TREE_RUNS))
    set_word(state, layout.SCRATCH, tables + 8 * count)
    for number in range(count - 1):
        views += 8 * layout.VIEW_WORDS * _write_segment(state, trees, views, prefixes, out + 8 * layout.OUT_WORDS)
        set_word(tables, number, word(out, layout.OUT_WORDS + layout.OUT_SEGMENTS))
        prefixes += word(trees, layout.TREE_PREFIX_LEN)
        trees += 8 * (layout.TREE_WORDS + layout.RUN_WORDS * word(trees, layout.TREE_RUNS))
    set_word(out, layout.OUT_SEGMENTS, _write_tables(state, tables, count - 1))
    return word(state, layout.PLACE) if word(state, layout.VTABLE_COUNT) <= layout.VTABLES_MAX else 0
