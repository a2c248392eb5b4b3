"""The kernel of scans over blocks that are in windows, as they are stored."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.cached_rows import WantedRows, append_cached, last_misses
from shale.kernels.columns import address_of
from shale.kernels.layout import scan as layout
from shale.types import (
    Entry,
    Row,
    SstView,
    Tree,
)
from tests.guarded import GuardedPages
from tests.unit.kernels.scan.views import BOUNDS, ROWS, FakeReader, expected_rows, view_of


def windows_of(view: SuperVersion, spans: dict[int, tuple[int, int]], keep: list[object]) -> int:
    """Return the address of windows with these blocks of each level, as they are stored; ``keep`` holds them."""
    keep.clear()
    levels = view.trees.lookups[0].levels
    words = np.zeros((len(levels), layout.WINDOW_WORDS), np.int64)
    for number, (first, last) in spans.items():
        slot = levels[number].slots[0]
        assert slot.meta is not None
        images = STORED[id(slot)][first:last]
        data = GuardedPages()
        words[number] = 0, first, last, data.put(b"".join(images)), address_of(slot.meta.index.offsets)
        keep.append(data)
    keep.append(words)
    return address_of(words)


STORED: dict[int, list[bytes]] = {}
"""The blocks of slots with their checksums."""


def without_images(slots: FakeReader, views: Sequence[SstView]) -> None:
    """Drop the blocks of SSTs from memory."""
    STORED.clear()
    for view in views:
        slot = slots.slot(view.sst)
        images = [slot.drop_image(block) or b"" for block in sorted(slot.images)]
        STORED[id(slot)] = [image + crc32(image).to_bytes(4, "big") for image in images]


@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(1, 4), st.tuples(BOUNDS, BOUNDS), st.booleans())
def test_blocks_in_windows_are_read_in_place(
    levels: list[list[Entry]], size: int, bounds: tuple[bytes | None, bytes | None], is_reversed: bool
) -> None:
    slots, keep = FakeReader(), list[object]()
    sources = [[row._replace(seq=row.seq + 40 * (6 - age)) for row in rows] for age, rows in enumerate(levels)]
    views = [slots.add(rows, block_size_bytes=128) for rows in sources]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    without_images(slots, views)
    wanted = rest = WantedRows(*bounds, None, 1000, is_reversed=is_reversed)
    found: list[Row] = []
    spans: dict[int, tuple[int, int]] = {}
    for _ in range(1000):
        answer = append_cached(found, view, rest, windows=windows_of(view, spans, keep))
        if answer == layout.END:
            break
        misses = last_misses(view)
        assert answer & layout.STATUS_MASK == layout.NEED_BLOCK
        assert misses.sources
        if found:
            last_key = found[-1].key
            rest = wanted._replace(end=last_key) if is_reversed else wanted._replace(start=last_key + b"\0")
        for level, _, block in misses.sources:
            slot = slots.slot(views[level].sst)
            assert slot.meta is not None
            separators = slot.meta.index.separators
            # A call begins after the last row again, so it needs the blocks from there on.
            first, last = spans.get(level, (block, block + 1))
            if is_reversed:
                last = last if rest.end is None else max(bisect_right(separators, rest.end), block + 1)
                spans[level] = max(block + 1 - size, 0), last
            else:
                first = first if rest.start is None else min(max(bisect_left(separators, rest.start) - 1, 0), block)
                spans[level] = first, min(block + size, len(separators))
    assert found == expected_rows([*sources], wanted)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_is_left_is_told_with_a_block_that_is_missing(is_reversed: bool) -> None:
    slots = FakeReader()
    rows = [Entry(b"k%04d" % number, b"v" * 10, 1, 0) for number in range(100)]
    views = [slots.add(rows, block_size_bytes=256)]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    slot = slots.slot(views[0].sst)
    middle = len(slot.images) // 2
    slot.drop_image(middle)
    found: list[Row] = []
    wanted = WantedRows(None, None, None, 1000, 5000, is_reversed=is_reversed)
    assert append_cached(found, view, wanted, 1000) & layout.STATUS_MASK == layout.NEED_BLOCK
    misses = last_misses(view)
    assert misses.sources == [(0, 0, middle)]
    assert misses.bytes_left == 5000 - 15 * len(found)
    assert 1000 - len(found) - 2 <= misses.walk_left <= 1000 - len(found)


def test_a_damaged_block_in_a_window_is_no_rows() -> None:
    slots, keep = FakeReader(), list[object]()
    views = [slots.add([Entry(b"k%04d" % number, b"v", 1, 0) for number in range(50)], block_size_bytes=4096)]
    view = view_of(slots, [], Tree(l0=tuple(views)))
    without_images(slots, views)
    stored = STORED[id(slots.slot(views[0].sst))]
    stored[0] = stored[0][:20] + bytes([stored[0][20] ^ 1]) + stored[0][21:]
    found: list[Row] = []
    windows = windows_of(view, {0: (0, 1)}, keep)
    assert append_cached(found, view, WantedRows(None, None, None, 100), windows=windows) == layout.INVALID
    assert found == []
