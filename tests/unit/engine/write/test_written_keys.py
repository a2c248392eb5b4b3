"""The keys that the history keeps of flushed memtables: lookups, sizes, merges, and what a limit affords."""

import random
from collections.abc import Sequence

import anyio
import pytest

from shale.engine.write.written_keys import WrittenKeys, first_affordable_seq, newest_writes, without
from shale.env import Env, InlineCpu, SystemClock
from shale.kernels.rows import EMPTY_ROWS, Rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry, KeyRange

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
Writes = Sequence[tuple[bytes, int]]


def rows_of(*writes: tuple[bytes, int], before: int = 0) -> Rows:
    """Return rows with values and times; ``before`` more rows lie before them in the same buffers."""
    padding = [(b"%d" % number, 1) for number in range(before)]
    return rows_from_entries(
        [Entry(key, b"value", seq, FLAG_CREATE_TS | FLAG_EXPIRE_TS, 7, 8) for key, seq in (*padding, *writes)]
    ).slice(before, before + len(writes))


def writes_of(rows: Rows) -> list[tuple[bytes, int]]:
    return [(rows.key(place), int(rows.seq[place])) for place in range(len(rows))]


@pytest.mark.parametrize("before", [0, 3])
def test_the_last_write_of_each_key_is_known(before: int) -> None:
    keys = WrittenKeys(rows_of((b"a", 5), (b"bb", 9), (b"c", 2), before=before))
    assert (len(keys), keys.last_seq, keys.size_bytes) == (3, 9, 4 + 3 * 16)
    known = {key: keys.last_seq_of(key) for key in (b"", b"a", b"aa", b"b", b"bb", b"bbb", b"c", b"d")}
    assert {key: seq for key, seq in known.items() if seq} == {b"a": 5, b"bb": 9, b"c": 2}
    assert writes_of(keys.rows) == [(b"a", 5), (b"bb", 9), (b"c", 2)]
    assert [len(column) for column in (keys.rows.val_bytes, keys.rows.key_bytes)] == [0, 4]
    for column in (keys.rows.flags, keys.rows.create_ts, keys.rows.expire_ts, keys.rows.val_offsets):
        assert not column.any()
    assert keys.rows.size_bytes == 4


def test_no_keys() -> None:
    keys = WrittenKeys(EMPTY_ROWS)
    assert (len(keys), keys.last_seq, keys.size_bytes, keys.last_seq_of(b"a")) == (0, 0, 0, 0)
    assert not keys.wrote_in(KeyRange(), 0)


@pytest.mark.parametrize(
    ("start", "end", "seq", "wrote"),
    [
        (None, None, 8, True),
        (None, None, 9, False),
        (b"a", b"b", 4, True),
        (b"a", b"b", 5, False),
        (b"b", b"bb", 0, False),
        (b"b", b"bbb", 8, True),
        (b"c", None, 1, True),
        (b"c", None, 2, False),
        (b"d", None, 0, False),
    ],
)
def test_writes_in_a_range(start: bytes | None, end: bytes | None, seq: int, *, wrote: bool) -> None:
    keys = WrittenKeys(rows_of((b"a", 5), (b"bb", 9), (b"c", 2)))
    assert keys.wrote_in(KeyRange.half_open(start, end), seq) is wrote


@pytest.mark.parametrize(
    ("parts", "after_seq", "expected"),
    [
        ([], 0, []),
        ([[(b"a", 5), (b"a", 2), (b"b", 3)]], 0, [(b"a", 5), (b"b", 3)]),
        ([[(b"a", 5), (b"a", 2), (b"b", 3)]], 3, [(b"a", 5)]),
        ([[(b"a", 5), (b"b", 3)]], 2, [(b"a", 5), (b"b", 3)]),
        ([[(b"a", 5), (b"b", 3)]], 5, []),
        ([[(b"a", 5), (b"c", 3)], [(b"a", 7), (b"bbb", 8)]], 3, [(b"a", 7), (b"bbb", 8)]),
        ([[(b"a", 5), (b"c", 3)], [], [(b"b", 8)]], 0, [(b"a", 5), (b"b", 8), (b"c", 3)]),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_the_newest_writes_of_several_parts(parts: list[Writes], after_seq: int, expected: Writes, before: int) -> None:
    async def scenario() -> None:
        found = await newest_writes([rows_of(*part, before=before) for part in parts], after_seq, ENV)
        assert writes_of(found.rows) == expected
        assert found.last_seq == max((seq for _, seq in expected), default=0)
        again = await newest_writes([found.rows], 0, ENV)
        assert writes_of(again.rows) == expected

    anyio.run(scenario)


WRITTEN = [(b"a", 5), (b"a", 2), (b"bb", 9), (b"c", 4), (b"c", 3), (b"c", 1)]


@pytest.mark.parametrize(
    "hidden",
    [
        [],
        [(b"a", 5)],
        [(b"a", 2)],
        [(b"a", 3)],
        [(b"b", 9)],
        [(b"c", 3), (b"bb", 9)],
        [(b"c", 1)],
        [(b"d", 1)],
        WRITTEN,
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_hidden_writes_are_left_out(hidden: Writes, before: int) -> None:
    left = without(rows_of(*WRITTEN, before=before), hidden)
    assert writes_of(left) == [write for write in WRITTEN if write not in hidden]
    columns = (left.seq, left.flags, left.create_ts, left.expire_ts, left.key_offsets[1:], left.val_offsets[1:])
    assert {len(column) for column in columns} == {len(left)}
    found = anyio.run(newest_writes, [left], 0, ENV)
    assert len(found) == len({key for key, _ in writes_of(left)})


def test_nothing_hidden_copies_nothing() -> None:
    rows = rows_of(*WRITTEN)
    assert without(rows, [(b"zz", 1)]) is rows


@pytest.mark.parametrize(
    ("limit_bytes", "seq"), [(0, 9), (17, 9), (18, 6), (34, 6), (35, 5), (51, 5), (52, 2), (69, 2), (70, 0), (1000, 0)]
)
def test_the_newest_keys_are_affordable(limit_bytes: int, seq: int) -> None:
    """The keys of seq 9, 6, 5 and 2 take 18, 17, 17 and 18 bytes."""
    parts = [WrittenKeys(rows_of((b"a", 5), (b"bb", 9))), WrittenKeys(rows_of((b"c", 6), (b"dd", 2)))]
    assert first_affordable_seq(parts, limit_bytes) == seq
