"""The contiguous prefix of WAL files whose puts end in any order (docs/reference/protocol.md 4.13)."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.wal.buffer import PendingWalFile
from shale.engine.wal.put_window import PutWindow


def file_of(wal_id: int) -> PendingWalFile:
    return PendingWalFile(id=wal_id, ranges=(), size_bytes=0)


@pytest.mark.parametrize("order", list(permutations((5, 6, 7))))
def test_files_count_once_none_is_missing_before_them(order: tuple[int, ...]) -> None:
    window = PutWindow(3, 4)
    for wal_id in (5, 6, 7):
        window.begin(file_of(wal_id))
    known = 4
    written: set[int] = set()
    for wal_id in order:
        window.end()
        written.add(wal_id)
        ready = [file.id for file in window.written(file_of(wal_id))]
        assert ready == list(range(known + 1, known + 1 + len(ready)))
        known += len(ready)
        assert set(range(5, known + 1)) <= written
        assert known + 1 not in written
    assert known == 7


def test_a_lost_file_stops_the_prefix_for_ever() -> None:
    window = PutWindow(2, 0)
    window.begin(file_of(1))
    for wal_id in range(2, 50):
        window.begin(file_of(wal_id))
        window.end()
        assert window.written(file_of(wal_id)) == []
    window.end()
    assert [file.id for file in window.written(file_of(1))] == list(range(1, 50))


@given(limit=st.integers(1, 8))
def test_no_more_puts_begin_than_the_limit(limit: int) -> None:
    window = PutWindow(limit, 10)
    for place in range(limit):
        assert window.has_room
        window.begin(file_of(11 + place))
    assert not window.has_room
    window.end()
    assert window.has_room


def test_after_a_failure_no_put_begins() -> None:
    window = PutWindow(2, 0)
    window.begin(file_of(1))
    window.halt()
    window.end()
    assert not window.has_room


def test_ids_are_used_in_order() -> None:
    window = PutWindow(2, 0)
    with pytest.raises(AssertionError, match="left out"):
        window.begin(file_of(2))
