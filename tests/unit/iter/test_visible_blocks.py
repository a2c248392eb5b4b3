"""The kernel that makes visible rows of stored blocks against its plain Python version."""

import asyncio
import random
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, SstMissing
from shale.format.blocks.decoder import StoredBlocks
from shale.iter.merge_filter_plain import merge_filter_plain
from shale.iter.source import drain
from shale.kernels.dispatch import use_kernels
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.types import (
    EVERYTHING,
    FLAG_CREATE_TS,
    FLAG_TOMBSTONE,
    U64_MAX,
    Compression,
    Entry,
    KeyRange,
    excluded,
    included,
)
from tests.examples import examples
from tests.unit.iter.merge_inputs import FEW_KEYS, SEQS, SOURCES
from tests.unit.kernels.blocks_v1 import as_v1_reads
from tests.unit.kernels.strategies import KEYS, entries, in_order
from tests.unit.sst.stored_runs import RANGES, stored

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
TREES = st.lists(
    st.lists(st.builds(lambda entry, seq: entry._replace(seq=seq), entries(FEW_KEYS | KEYS), SEQS), min_size=1).map(
        in_order
    ),
    max_size=5,
)


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


class Spans:
    """A source of blocks, of which every second may have been read ahead."""

    def __init__(
        self, spans: list[StoredBlocks], *, reads_ahead: bool = False, knows_end: bool = False, error: bool = False
    ) -> None:
        self._spans = deque(spans)
        self._reads_ahead = reads_ahead
        self._knows_end = knows_end
        self._error = error
        self._is_at_hand = False

    @property
    def is_ready(self) -> bool:
        return self._is_at_hand

    def read_now(self) -> bool:
        return False

    @property
    def is_over(self) -> bool:
        return self._knows_end and not self._spans and not self._error

    async def next(self) -> StoredBlocks | None:
        blocks = self._taken()
        self.start_next_read()
        return blocks

    def take(self) -> StoredBlocks | None:
        assert self._is_at_hand
        return self._taken()

    def start_next_read(self) -> None:
        self._is_at_hand = self._reads_ahead

    def _taken(self) -> StoredBlocks | None:
        self._is_at_hand = False
        if self._spans:
            return self._spans.popleft()
        if self._error:
            raise SstMissing("gone", "gone.sst")
        return None


def seen(
    tables: list[list[Entry]],
    sources: list[Spans],
    *,
    max_seq: int | None = None,
    max_seq_of_blocks: int = U64_MAX,
    now_tick: int | None = None,
    reads_all: bool = False,
) -> list[Rows]:
    """Return the chunks."""
    from shale.iter.visible_blocks import Visibility, VisibleBlocksSource

    source = VisibleBlocksSource(
        [rows_from_entries(rows) for rows in tables],
        sources,
        ENV,
        visibility=Visibility(max_seq=max_seq, max_seq_of_blocks=max_seq_of_blocks, now_tick=now_tick),
        reads_all=reads_all,
    )
    return asyncio.run(drain(source))


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    tables=SOURCES,
    trees=TREES,
    max_seq=st.none() | SEQS,
    max_seq_of_blocks=st.just(U64_MAX) | SEQS,
    now_tick=st.none() | st.integers(-(2**63), 2**63 - 1),
    visible=st.just(EVERYTHING) | RANGES,
    span=st.integers(1, 4),
    version=st.sampled_from([1, 2]),
    compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    drives=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_blocks_and_columns_show_what_merged_entries_show(
    tables: list[list[Entry]],
    trees: list[list[Entry]],
    max_seq: int | None,
    max_seq_of_blocks: int,
    now_tick: int | None,
    visible: KeyRange,
    span: int,
    version: int,
    compression: Compression,
    drives: tuple[bool, bool, bool],
) -> None:
    reads_ahead, knows_end, reads_all = drives
    sources = [
        Spans(
            stored(rows, span=span, version=version, compression=compression, visible=visible),
            reads_ahead=reads_ahead,
            knows_end=knows_end,
        )
        for rows in trees
    ]
    if version == 1:
        trees = [list(map(as_v1_reads, rows)) for rows in trees]
    shown = [[row for row in rows if row.seq <= max_seq_of_blocks and visible.contains(row.key)] for rows in trees]
    rules = MergeRules(newest_only=True, max_seq=max_seq, now_tick=now_tick, drop_tombstones=True)
    chunks = seen(
        tables,
        sources,
        max_seq=max_seq,
        max_seq_of_blocks=max_seq_of_blocks,
        now_tick=now_tick,
        reads_all=reads_all,
    )
    assert entries_from_rows(concat_rows(chunks)) == list(merge_filter_plain([*tables, *shown], rules))


@pytest.mark.parametrize("version", [1, 2])
def test_a_range_ends_at_its_key_wherever_keys_differ_from_it(version: int) -> None:
    """Keys are compared eight bytes at a time, and short keys are padded with zeros."""
    keys = sorted({b"a" * size + tail for size in (1, 7, 8, 15, 16, 17, 30) for tail in (b"", b"\0", b"\0\0", b"b")})
    rows = [Entry(key, b"v", 1, 0, 0, 0) for key in keys]
    for place, end in enumerate(keys):
        visible = KeyRange(included(keys[0]), excluded(end))
        if place:
            chunks = seen([], [Spans(stored(rows, version=version, visible=visible))])
            assert entries_from_rows(concat_rows(chunks)) == rows[:place]


def many(count: int, step: int, seq: int, *, size: int = 100, flags: int = 0) -> list[Entry]:
    """Return rows whose keys interleave with those of other steps."""
    return [
        Entry(b"%016d" % (number * step), bytes(size) if not flags else b"", seq, flags, 0, 0)
        for number in range(count)
    ]


@pytest.mark.parametrize("reads_all", [False, True])
def test_output_that_is_full_goes_on(reads_all: bool) -> None:
    newest, older = many(3000, 3, 9, size=3000), many(4000, 2, 5, size=3000)
    deleted = many(700, 5, 7, flags=FLAG_TOMBSTONE)
    rules = MergeRules(newest_only=True, drop_tombstones=True)
    chunks = seen([newest], [Spans(stored(deleted)), Spans(stored(older), reads_ahead=True)], reads_all=reads_all)
    assert len(chunks) > 1
    assert entries_from_rows(concat_rows(chunks)) == list(merge_filter_plain([newest, deleted, older], rules))


def test_a_row_larger_than_the_output_makes_it_grow() -> None:
    rows = [Entry(b"k" * 70_000, bytes(9 << 20), 3, 0, 0, 0), Entry(b"l", b"small", 4, FLAG_CREATE_TS, 7, 0)]
    assert entries_from_rows(concat_rows(seen([], [Spans(stored(rows))]))) == rows
    assert entries_from_rows(concat_rows(seen([rows], [], reads_all=True))) == rows


def test_the_first_chunk_of_a_scan_that_may_end_soon_is_small() -> None:
    rows = many(20_000, 1, 1)
    assert len(seen([rows], [])[0]) <= 1024
    (whole,) = seen([rows], [], reads_all=True)
    assert len(whole) == 20_000


def test_rows_before_an_sst_that_is_gone_are_not_needed_to_end_in_its_error() -> None:
    with pytest.raises(SstMissing):
        seen([], [Spans(stored(many(500, 1, 1)), error=True)], reads_all=True)


@pytest.mark.parametrize("at", [5, 40, 300])
def test_damage_is_told_with_its_place(at: int) -> None:
    from shale.iter.visible_blocks import VisibleBlocksSource

    (blocks,) = stored(many(50, 1, 1), span=1000)
    image = blocks.image.copy()
    image[at] ^= 0x40
    told: list[str] = []
    source = VisibleBlocksSource([], [Spans([replace(blocks, image=image)])], ENV, on_corrupt=told.append)
    with pytest.raises(CorruptionError, match="checksum mismatch") as error:
        asyncio.run(drain(source))
    assert told == ["x.sst"]
    assert error.value.offset is not None
    assert error.value.offset <= 1000 + at


def test_a_full_read_fits_its_buffers_to_the_rows() -> None:
    """A caller keeps them; rows that get larger only make the chunks shorter."""
    sizes = [10] * 140_000 + [5_000] * 3_000
    rows = [Entry(b"%08d" % number, b"v" * size, 1, 0) for number, size in enumerate(sizes)]
    chunks = seen([rows], [], reads_all=True)
    assert [int(size) for chunk in chunks for size in np.diff(chunk.val_offsets)] == sizes
    assert [len(chunk) for chunk in chunks[:2]] == [65_536, 65_536]
    first_bytes, later_bytes = (chunk.key_bytes.nbytes + chunk.val_bytes.nbytes for chunk in chunks[:2])
    assert chunks[1].size_bytes < later_bytes < 1.05 * chunks[1].size_bytes + 10_000 < first_bytes


class LocalSpans(Spans):
    """A source whose spans can all be read at once, as from the page cache."""

    def read_now(self) -> bool:
        self._is_at_hand = bool(self._spans)
        return self._is_at_hand


def test_others_run_while_a_scan_passes_hidden_rows_of_local_files() -> None:
    """Nothing waits, and there is no output that would end a turn."""
    from shale.iter.visible_blocks import VisibleBlocksSource

    rows = [entry._replace(flags=FLAG_TOMBSTONE, value=b"") for entry in many(5_000, 1, 1)]
    spans = stored(rows)
    turns = 0

    async def scan() -> None:
        nonlocal turns
        merged = asyncio.ensure_future(drain(VisibleBlocksSource([], [LocalSpans(spans)], ENV)))
        while not merged.done():
            turns += 1
            await asyncio.sleep(0)
        assert sum(map(len, await merged)) == 0

    asyncio.run(scan())
    assert turns >= len(spans) // 4
