"""The merging kernel against its plain Python version, and how sources are driven."""

import asyncio
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.env import Env, InlineCpu, SystemClock
from shale.iter import merge_filter_kernel
from shale.iter.merge import MergeSource
from shale.iter.merge_filter import MergeFilterSource
from shale.iter.merge_filter_kernel import CAPACITY_MAX, MergeFilterKernel, OutputCapacity, Step
from shale.iter.merge_filter_plain import merge_filter_plain
from shale.iter.source import RowsSource, drain
from shale.kernels.merge_rules import MergeRules, OnExpired
from shale.kernels.rows import EMPTY_ROWS, Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.types import FLAG_TOMBSTONE, Entry
from tests.unit.iter.merge_inputs import RULES, SOURCES, Chunks

ENV = Env(SystemClock(), random.Random(1), InlineCpu())


@dataclass
class Tally:
    """A counter of expired rows."""

    values: int = 0
    operands: int = 0

    def __call__(self, values: int, operands: int) -> None:
        self.values += values
        self.operands += operands


def merge_filter(
    sources: list[list[Entry]], rules: MergeRules, chunk: int, on_expired: OnExpired | None = None
) -> list[Entry]:
    fused = MergeFilterSource([Chunks(rows, chunk) for rows in sources], rules, ENV, on_expired)
    return entries_from_rows(concat_rows(asyncio.run(drain(fused))))


@given(SOURCES, RULES, st.integers(1, 50), st.integers(1, 40))
def test_kernel_and_twin_agree(sources: list[list[Entry]], rules: MergeRules, chunk: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_filter_kernel, "CAPACITY_FIRST", OutputCapacity(room, 16 * room, 40 * room))
        patch.setattr(merge_filter_kernel, "CAPACITY_MAX", OutputCapacity(room, 16 * room, 40 * room))
        expired, expired_plain = Tally(), Tally()
        assert merge_filter(sources, rules, chunk, expired) == list(merge_filter_plain(sources, rules, expired_plain))
        assert expired == expired_plain


def test_many_tombstones_of_one_key_wait_for_what_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the output holds: none is emitted before it is known whether older versions follow."""
    monkeypatch.setattr(merge_filter_kernel, "CAPACITY_FIRST", OutputCapacity(8, 64, 64))
    tombstones = [Entry(b"k", b"", seq, FLAG_TOMBSTONE) for seq in range(300, 1, -1)]
    rules = MergeRules(newest_only=True, min_seq=1, drop_tombstones=True)
    assert merge_filter([tombstones], rules, 7) == []
    below = Entry(b"k", b"v", 1, 0)
    assert merge_filter([tombstones, [below]], rules, 7) == [*tombstones, below]


def test_a_value_larger_than_the_output_passes() -> None:
    rows = [Entry(b"k%d" % number, bytes(1 << 20), 1, 0) for number in range(3)]
    assert merge_filter([rows], MergeRules(), 2) == rows


def test_the_output_is_small_again_after_a_large_value() -> None:
    kernel = MergeFilterKernel(1, MergeRules())
    rows = [Entry(b"a", bytes(64 << 20), 1, 0), *(Entry(b"b%06d" % number, b"v", 1, 0) for number in range(40_000))]
    kernel.begin(0, rows_from_entries(rows))
    while kernel.run() is Step.FULL and not len(kernel.take()):
        pass
    assert kernel.capacity.value_bytes <= CAPACITY_MAX.value_bytes
    assert kernel.capacity.rows <= CAPACITY_MAX.rows


def test_small_inputs_do_not_need_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.iter.merge_filter.use_kernels", lambda: False)
    sources = [[Entry(b"a", b"1", 2, 0), Entry(b"b", b"1", 3, 0)], [Entry(b"a", b"0", 1, 0)]]
    assert merge_filter(sources, MergeRules(), 1) == [sources[0][0], sources[1][0], sources[0][1]]


def test_the_end_is_repeated() -> None:
    async def ask() -> list[Rows | None]:
        rows = rows_from_entries([Entry(b"a", b"", 1, 0)])
        source = MergeSource([RowsSource(rows), RowsSource(EMPTY_ROWS)], ENV)
        return [await source.next() for _ in range(3)]

    first, *rest = asyncio.run(ask())
    assert first is not None
    assert rest == [None, None]


def test_graves_with_long_keys_fit_whatever_the_output_grows_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that grew for one key must not shrink while it holds pending tombstones."""
    monkeypatch.setattr(merge_filter_kernel, "CAPACITY_FIRST", OutputCapacity(8, 64, 64))
    monkeypatch.setattr(merge_filter_kernel, "CAPACITY_MAX", OutputCapacity(512, 128, 64))
    key = b"k" * 500
    rows = [Entry(b"a", b"v", 1, 0), Entry(key, b"v", 301, 0)]
    rows += [Entry(key, b"", seq, FLAG_TOMBSTONE) for seq in range(300, 1, -1)] + [Entry(key, b"w", 1, 0)]
    assert merge_filter([rows], MergeRules(newest_only=True, min_seq=1, drop_tombstones=True), 7) == rows
