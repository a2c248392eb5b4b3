"""The merging kernel against its plain twin, and how sources are driven."""

import asyncio
import random
from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.env import Env, InlineCpu, SystemClock
from shale.iter import fused_kernel
from shale.iter.fused import Fused
from shale.iter.fused_kernel import ROOM_MAX, KernelFuse, Room, Step
from shale.iter.merge import MergeSource
from shale.iter.plain import fuse_plain
from shale.iter.source import RowsSource, drain
from shale.kernels.choice import load_kernels
from shale.kernels.rows import EMPTY_ROWS, Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.kernels.rules import OnExpired, Rules
from shale.types import FLAG_TOMBSTONE, Entry
from tests.unit.kernels.strategies import KEYS, entries, in_order

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
SEQS = st.integers(0, 40) | st.integers(0, 2**64 - 1)
FEW_KEYS = st.sampled_from([b"a", b"aa", b"a\0", b"key/00000001", b"key/0000000000000001", b"key/0000000000000001x"])
RULES = st.builds(
    Rules,
    newest_only=st.booleans(),
    max_seq=st.none() | SEQS,
    min_seq=st.none() | SEQS,
    now_tick=st.none() | st.integers(-(2**63), 2**63 - 1),
    drop_tombstones=st.booleans(),
)
SOURCES = st.lists(
    st.lists(st.builds(lambda entry, seq: entry._replace(seq=seq), entries(FEW_KEYS | KEYS), SEQS)).map(in_order),
    max_size=5,
)


class Chunks:
    """A source that hands out so many rows at a time."""

    def __init__(self, rows: list[Entry], size: int) -> None:
        self._chunks = deque(rows_from_entries(rows[start : start + size]) for start in range(0, len(rows), size))

    async def next(self) -> Rows | None:
        return self._chunks.popleft() if self._chunks else None


@dataclass
class Tally:
    """Counts expired rows."""

    values: int = 0
    operands: int = 0

    def __call__(self, values: int, operands: int) -> None:
        self.values += values
        self.operands += operands


def fuse(sources: list[list[Entry]], rules: Rules, chunk: int, on_expired: OnExpired | None = None) -> list[Entry]:
    fused = Fused([Chunks(rows, chunk) for rows in sources], rules, ENV, on_expired)
    return entries_from_rows(concat_rows(asyncio.run(drain(fused))))


@given(SOURCES, RULES, st.integers(1, 50), st.integers(1, 40))
def test_kernel_and_twin_agree(sources: list[list[Entry]], rules: Rules, chunk: int, room: int) -> None:
    load_kernels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_kernel, "ROOM_FIRST", Room(room, 16 * room, 40 * room))
        patch.setattr(fused_kernel, "ROOM_MAX", Room(room, 16 * room, 40 * room))
        expired, expired_plain = Tally(), Tally()
        assert fuse(sources, rules, chunk, expired) == list(fuse_plain(sources, rules, expired_plain))
        assert expired == expired_plain


def test_many_tombstones_of_one_key_wait_for_what_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than the output holds: none may go out before it is known whether something lies below."""
    load_kernels()
    monkeypatch.setattr(fused_kernel, "ROOM_FIRST", Room(8, 64, 64))
    graves = [Entry(b"k", b"", seq, FLAG_TOMBSTONE) for seq in range(300, 1, -1)]
    rules = Rules(newest_only=True, min_seq=1, drop_tombstones=True)
    assert fuse([graves], rules, 7) == []
    below = Entry(b"k", b"v", 1, 0)
    assert fuse([graves, [below]], rules, 7) == [*graves, below]


def test_a_value_larger_than_the_output_passes() -> None:
    load_kernels()
    rows = [Entry(b"k%d" % number, bytes(1 << 20), 1, 0) for number in range(3)]
    assert fuse([rows], Rules(), 2) == rows


def test_the_output_is_small_again_behind_a_large_value() -> None:
    load_kernels()
    kernel = KernelFuse(1, Rules())
    rows = [Entry(b"a", bytes(64 << 20), 1, 0), *(Entry(b"b%06d" % number, b"v", 1, 0) for number in range(40_000))]
    kernel.begin(0, rows_from_entries(rows))
    while kernel.run() is Step.FULL and not len(kernel.take()):
        pass
    assert kernel.room.value_bytes <= ROOM_MAX.value_bytes
    assert kernel.room.rows <= ROOM_MAX.rows


def test_small_inputs_do_not_need_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.iter.fused.use_kernels", lambda _size: False)
    sources = [[Entry(b"a", b"1", 2, 0), Entry(b"b", b"1", 3, 0)], [Entry(b"a", b"0", 1, 0)]]
    assert fuse(sources, Rules(), 1) == [sources[0][0], sources[1][0], sources[0][1]]


def test_the_end_comes_again() -> None:
    async def ask() -> list[Rows | None]:
        rows = rows_from_entries([Entry(b"a", b"", 1, 0)])
        source = MergeSource([RowsSource(rows), RowsSource(EMPTY_ROWS)], ENV)
        return [await source.next() for _ in range(3)]

    first, *rest = asyncio.run(ask())
    assert first is not None
    assert rest == [None, None]


def test_graves_with_long_keys_fit_whatever_the_output_grows_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that grew beyond the usual for one key must not shrink while tombstones of it wait."""
    load_kernels()
    monkeypatch.setattr(fused_kernel, "ROOM_FIRST", Room(8, 64, 64))
    monkeypatch.setattr(fused_kernel, "ROOM_MAX", Room(512, 128, 64))
    key = b"k" * 500
    rows = [Entry(b"a", b"v", 1, 0), Entry(key, b"v", 301, 0)]
    rows += [Entry(key, b"", seq, FLAG_TOMBSTONE) for seq in range(300, 1, -1)] + [Entry(key, b"w", 1, 0)]
    assert fuse([rows], Rules(newest_only=True, min_seq=1, drop_tombstones=True), 7) == rows
